"""Links of all sites: their signs, and products of three in a row."""

from __future__ import annotations

from collections.abc import Sequence

from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_array, check_gauge
from stages.lqcd.lattice.geometry import Lattice


def long_links(links: Array, lattice: Lattice, coefficient: float, out: Array) -> None:
    """out_mu(x) = c U_mu(x) U_mu(x + mu) U_mu(x + 2 mu), ``[mu, parity, site, 3, 3]``; out is not links."""
    check_gauge(links, lattice, out)
    kernel("link_fields.long_links", type(links))(links, lattice, coefficient, out)


def boundary_signs(
    links: Array, lattice: Lattice, directions: Sequence[int], out: Array, parity: int | None = None
) -> None:
    """``out = -links`` for links that leave the last slice of `directions`, else links; out may be links.

    parity: of the sites where the links begin, where they are ``[mu, site, 3, 3]`` of one parity alone.
    """
    _check_signed(links, lattice, out, parity)
    kernel("link_fields.boundary_signs", type(links))(links, lattice, directions, out, parity)


def staggered_phases(links: Array, lattice: Lattice, out: Array, parity: int | None = None) -> None:
    """``out = eta_mu(x) links``, MILC's phases (`stages.lqcd.gauge.phases`); out may be links.

    parity: as for `boundary_signs`.
    """
    _check_signed(links, lattice, out, parity)
    kernel("link_fields.staggered_phases", type(links))(links, lattice, out, parity)


def _check_signed(links: Array, lattice: Lattice, out: Array, parity: int | None) -> None:
    if parity is None:
        check_gauge(links, lattice, out, in_place=True)
        return
    for name, array in (("links", links), ("out", out)):
        check_array(name, array, (4, lattice.half_volume, 3, 3), links.dtype)
