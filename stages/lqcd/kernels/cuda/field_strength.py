"""One thread a site, and one an element of the clover term."""

from __future__ import annotations

import cupy
import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import gauge
from stages.lqcd.lattice.geometry import Lattice


def field_strength(links: cupy.ndarray, lattice: Lattice, mu: int, nu: int, out: cupy.ndarray) -> None:
    run(gauge.field_strength(lattice, out.dtype), out, links, np.int32(mu), np.int32(nu))


def add_clover(term: cupy.ndarray, strength: cupy.ndarray, spins: NDArray[np.complex128]) -> None:
    blocks = cupy.asarray(spins.astype(term.dtype))
    run(gauge.add_clover(term.size, term.dtype), term, strength, blocks, np.uint64(term.size))
