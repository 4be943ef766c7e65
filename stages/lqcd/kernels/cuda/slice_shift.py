"""Shifts of slices on a GPU, one thread a column of a site; each of several GPUs shifts its own slices."""

from __future__ import annotations

from functools import cache, partial
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.own_rows import on_own_rows
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, Launch, extents_of, instance, power_of_two
from stages.lqcd.kernels.expressions import laplacian_step as laplacian_step
from stages.lqcd.lattice.geometry import Lattice

WARP = 32


def slice_shift(
    links: cupy.ndarray,
    field: cupy.ndarray,
    out: cupy.ndarray,
    lattice: Lattice,
    mu: int,
    step: int,
    first: int = 0,
) -> cupy.ndarray:
    shift = partial(_shift, links[mu], lattice, mu, step)
    on_own_rows(shift, field, out, range(first, first + len(field)))
    return out


def _shift(
    links: cupy.ndarray,
    lattice: Lattice,
    mu: int,
    step: int,
    field: cupy.ndarray,
    out: cupy.ndarray,
    slices: range,
) -> None:
    """A shift of these slices of the lattice, for links of the direction mu."""
    columns, rows = field.shape[-1], field.size // field.shape[-1] // 3
    kernel = slice_shift_launch(lattice, field.dtype, mu, step, rows, columns)
    run(kernel, links, field, out, np.int32(rows), np.int32(columns), np.int32(slices.start))


@cache
def slice_shift_launch(
    lattice: Lattice, dtype: np.dtype, mu: int, step: int, rows: int, columns: int
) -> Launch:
    """Launch on so many sites, with up to a warp of threads for the columns of a site."""
    lanes = power_of_two(min(columns, WARP))
    kernel = instance("slice_shift", dtype, extents_of(lattice), mu, step, lanes)
    blocks = ceil(rows / (BLOCK_THREADS // lanes))
    return Launch("slice_shift.cu", kernel, (blocks,), BLOCK_THREADS, for_lattice=True)
