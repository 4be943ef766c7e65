"""One thread a site, and one an element of the clover term."""

from __future__ import annotations

from functools import cache
from math import ceil

import cupy
import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import (
    BLOCK_THREADS,
    MULTIPROCESSORS,
    WARPS_THREADS,
    Launch,
    on_lattice,
    real_of,
    warp_work,
)
from stages.lqcd.lattice.geometry import Lattice


def field_strength(
    links: cupy.ndarray, lattice: Lattice, parity: int, mu: int, nu: int, out: cupy.ndarray
) -> None:
    kernel = field_strength_launch(lattice, out.dtype)
    run(kernel, out, links, np.int32(parity), np.int32(mu), np.int32(nu))


def add_clover(term: cupy.ndarray, strength: cupy.ndarray, spins: NDArray[np.complex128]) -> None:
    blocks = cupy.asarray(spins.astype(term.dtype))
    run(add_clover_launch(term.size, term.dtype), term, strength, blocks, np.uint64(term.size))


@cache
def field_strength_launch(lattice: Lattice, dtype: np.dtype) -> Launch:
    """The four plaquettes around every site of a parity."""
    blocks = ceil(lattice.half_volume / WARPS_THREADS)
    kernel = on_lattice("field_strength", lattice, dtype)
    work = warp_work(lattice)
    return Launch("field_strength.cu", kernel, (blocks,), WARPS_THREADS, for_lattice=True, work=work)


@cache
def add_clover_launch(elements: int, dtype: np.dtype) -> Launch:
    """Products of spin and colour matrices, an element of the clover term a thread."""
    blocks = min(ceil(elements / BLOCK_THREADS), 16 * MULTIPROCESSORS)
    name, work = f"add_clover<{real_of(dtype)}>", RowWork(elements)
    return Launch("field_strength.cu", name, (blocks,), BLOCK_THREADS, work=work)
