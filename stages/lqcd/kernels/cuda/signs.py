"""Signs of links on a GPU, one thread a link."""

from __future__ import annotations

from collections.abc import Sequence

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import gauge
from stages.lqcd.lattice.geometry import Lattice


def boundary_signs(
    links: cupy.ndarray, lattice: Lattice, directions: Sequence[int], out: cupy.ndarray
) -> None:
    bits = np.uint32(sum(1 << mu for mu in directions))
    run(gauge.signs("boundary_signs", lattice, out.dtype), out, links, bits)


def staggered_phases(links: cupy.ndarray, lattice: Lattice, out: cupy.ndarray) -> None:
    run(gauge.signs("staggered_phases", lattice, out.dtype), out, links)
