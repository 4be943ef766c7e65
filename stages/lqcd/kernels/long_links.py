"""Products of three links in a row."""

from __future__ import annotations

from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_gauge
from stages.lqcd.lattice.geometry import Lattice


def long_links(links: Array, lattice: Lattice, coefficient: float, out: Array) -> None:
    """out_mu(x) = c U_mu(x) U_mu(x + mu) U_mu(x + 2 mu), ``[mu, parity, site, 3, 3]``; out is not links."""
    check_gauge(links, lattice, out)
    kernel("long_links.long_links", type(links))(links, lattice, coefficient, out)
