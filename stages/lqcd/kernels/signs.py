"""Signs of links: boundary conditions and staggered phases."""

from __future__ import annotations

from collections.abc import Sequence

from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_gauge
from stages.lqcd.lattice.geometry import Lattice


def boundary_signs(links: Array, lattice: Lattice, directions: Sequence[int], out: Array) -> None:
    """``out = -links`` for links that leave the last slice of `directions`, else links; out may be links."""
    check_gauge(links, lattice, out, in_place=True)
    kernel("signs.boundary_signs", type(links))(links, lattice, directions, out)


def staggered_phases(links: Array, lattice: Lattice, out: Array) -> None:
    """``out = eta_mu(x) links``, MILC's phases (`stages.lqcd.gauge.phases`); out may be links."""
    check_gauge(links, lattice, out, in_place=True)
    kernel("signs.staggered_phases", type(links))(links, lattice, out)
