"""Sums over slices in every block of threads, then over blocks."""

from __future__ import annotations

from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda import block_blas
from stages.lqcd.kernels.cuda.columns import ColumnShape, column_shapes, row_threads
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import Launch, extents_of, instance
from stages.lqcd.kernels.cuda.tuning.choice import Options, tuned
from stages.lqcd.lattice.geometry import Lattice


def one_link_current(
    links: cupy.ndarray, noise: cupy.ndarray, solution: cupy.ndarray, lattice: Lattice, parity: int
) -> cupy.ndarray:
    n = noise.shape[-1]
    kernel = one_link_current_launch(lattice, n, noise.dtype)
    partials = cupy.empty((kernel.grid[0], lattice.time_extent, 4, n))
    run(kernel, links, noise, solution, partials, np.int32(parity))
    return block_blas.sum_partials(partials).T


def slice_dots(x: cupy.ndarray, y: cupy.ndarray, lattice: Lattice) -> cupy.ndarray:
    return block_blas.slice_dots(x, y, lattice.time_extent).T


@tuned
def one_link_current_launch(lattice: Lattice, n: int, dtype: np.dtype) -> Options[ColumnShape]:
    """Partial currents, float64 ``[parts, t, mu, n]``; grid (parts, t)."""
    slices = lattice.time_extent

    def launch(shape: ColumnShape) -> Launch:
        parts = min(ceil(lattice.sites_per_slice / shape.groups), ceil(shape.blocks / slices))
        kernel = instance("current_partials", dtype, extents_of(lattice), n, shape.groups)
        block = row_threads(n, dtype) * shape.groups
        work = RowWork(lattice.sites_per_slice, slices=slices)
        return Launch("one_link_current.cu", kernel, (parts, slices), block, for_lattice=True, work=work)

    return Options(column_shapes(n, dtype, (256, 128, 64), (2048, 4096, 1024)), launch)
