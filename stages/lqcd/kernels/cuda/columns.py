"""Shapes of the kernels that work on each right-hand side by itself, and of the end of every reduction."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import (
    MULTIPROCESSORS,
    Launch,
    check_rhs,
    instance,
    narrowable,
    power_of_two,
)

REDUCTIONS = {"dots": ("dots.cu", 1024), "norms2": ("dots.cu", 2048), "cg_residual": ("cg_update.cu", 1024)}
"""File of a reduction over rows, and threads of it that are resident on a multiprocessor."""


@dataclass(frozen=True)
class ColumnShape:
    """Shape of a kernel on columns: rows that a block takes at a time, its threads, number of blocks."""

    groups: int
    threads: int
    blocks: int


@narrowable
def reduction(kernel: str, n: int, dtype: np.dtype, rows: int, slices: int = 1) -> Launch:
    """A reduction of `REDUCTIONS` over `slices` runs of `rows` rows; grid (parts, slices).

    A grid that is resident as a whole, with enough loads under way, reaches the copy bandwidth.
    """
    file, resident = REDUCTIONS[kernel]
    shape = column_shape(n, dtype, 256 if n < 8 else 512, resident)
    parts = min(ceil(rows / (4 * shape.groups)), ceil(shape.blocks / slices))
    name, work = instance(kernel, dtype, n, shape.groups), RowWork(rows, slices=slices, sums=slices == 1)
    return Launch(file, name, (parts, slices), shape.threads, work=work)


def column_shape(n: int, dtype: np.dtype, threads: int, resident: int) -> ColumnShape:
    """Blocks of up to so many threads, in a number that puts so many threads on each multiprocessor."""
    groups = row_groups(n, dtype, threads)
    block = row_threads(n, dtype) * groups
    return ColumnShape(groups, block, max(1, resident // block) * MULTIPROCESSORS)


def row_groups(n: int, dtype: np.dtype, threads: int) -> int:
    """Rows that a block of up to so many threads takes at a time: a power of two, which sums need."""
    return power_of_two(threads // row_threads(n, dtype))


def row_threads(n: int, dtype: np.dtype) -> int:
    """Threads of a row for a kernel on columns; two columns share a vector if n is even."""
    check_rhs(n)
    return n // 2 if dtype == np.complex64 and n % 2 == 0 else n
