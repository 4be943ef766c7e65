"""Sums over slices in every block of threads, then over blocks."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda import block_blas
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import columns
from stages.lqcd.lattice.geometry import Lattice


def one_link_current(
    links: cupy.ndarray, noise: cupy.ndarray, solution: cupy.ndarray, lattice: Lattice, parity: int
) -> cupy.ndarray:
    n = noise.shape[-1]
    kernel = columns.one_link_current(lattice, n, noise.dtype)
    partials = cupy.empty((kernel.grid[0], lattice.time_extent, 4, n))
    run(kernel, links, noise, solution, partials, np.int32(parity))
    return block_blas.sum_partials(partials).T


def slice_dots(x: cupy.ndarray, y: cupy.ndarray, lattice: Lattice) -> cupy.ndarray:
    return block_blas.slice_dots(x, y, lattice.time_extent).T
