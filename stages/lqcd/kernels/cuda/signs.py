"""Signs of links: boundary conditions and staggered phases."""

from __future__ import annotations

from collections.abc import Sequence

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import gauge
from stages.lqcd.kernels.operands import check_gauge
from stages.lqcd.lattice.geometry import Lattice


def boundary_signs(
    links: cupy.ndarray, lattice: Lattice, directions: Sequence[int], out: cupy.ndarray
) -> None:
    """out = -links for links that leave the last slice of `directions`, else links; out may be links."""
    check_gauge(links, lattice, out, in_place=True)
    bits = np.uint32(sum(1 << mu for mu in directions))
    run(gauge.signs("boundary_signs", lattice, out.dtype), out, links, bits)


def staggered_phases(links: cupy.ndarray, lattice: Lattice, out: cupy.ndarray) -> None:
    """out = eta_mu(x) links, MILC's phases (`stages.lqcd.gauge.phases`); out may be links."""
    check_gauge(links, lattice, out, in_place=True)
    run(gauge.signs("staggered_phases", lattice, out.dtype), out, links)
