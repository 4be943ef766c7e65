"""Shapes of the kernels that work on each right-hand side by itself, and of the end of every reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import ceil

import numpy as np

from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import MULTIPROCESSORS, Launch, check_rhs, instance, power_of_two
from stages.lqcd.kernels.cuda.tuning.choice import Options, tuned

REDUCTIONS = {"dots": ("dots.cu", 1024), "norms2": ("dots.cu", 2048), "cg_residual": ("cg_update.cu", 1024)}
"""File of a reduction over rows, and threads of it that are resident on a multiprocessor."""


@dataclass(frozen=True)
class ColumnShape:
    """Shape of a kernel on columns: rows that a block takes at a time, blocks wished for in all."""

    groups: int
    blocks: int


@tuned
def reduction(kernel: str, n: int, dtype: np.dtype, rows: int, slices: int = 1) -> Options[ColumnShape]:
    """A reduction of `REDUCTIONS` over `slices` runs of `rows` rows; grid (parts, slices).

    A grid that is resident as a whole, with enough loads under way, reaches the copy bandwidth.
    """
    file, resident = REDUCTIONS[kernel]
    threads = (256, 512, 128) if n < 8 else (512, 256, 128)

    def launch(shape: ColumnShape) -> Launch:
        parts = min(ceil(rows / (4 * shape.groups)), ceil(shape.blocks / slices))
        block = row_threads(n, dtype) * shape.groups
        work = RowWork(rows, slices=slices, sums=slices == 1)
        return Launch(file, instance(kernel, dtype, n, shape.groups), (parts, slices), block, work=work)

    return Options(column_shapes(n, dtype, threads, (resident, 2 * resident, resident // 2)), launch)


def column_shapes(
    n: int, dtype: np.dtype, threads: Sequence[int], resident: Sequence[int]
) -> tuple[ColumnShape, ...]:
    """Blocks of up to so many threads, in a number that puts so many threads on each multiprocessor."""
    block = {groups: row_threads(n, dtype) * groups for groups in row_groups(n, dtype, threads)}
    return tuple(
        ColumnShape(groups, max(1, most // block[groups]) * MULTIPROCESSORS)
        for groups, most in product(block, resident)
    )


def row_groups(n: int, dtype: np.dtype, threads: Sequence[int]) -> list[int]:
    """Rows that blocks of up to so many threads take at a time: powers of two, which sums need."""
    return list(dict.fromkeys(power_of_two(most // row_threads(n, dtype)) for most in threads))


def row_threads(n: int, dtype: np.dtype) -> int:
    """Threads of a row for a kernel on columns; two columns share a vector if n is even."""
    check_rhs(n)
    return n // 2 if dtype == np.complex64 and n % 2 == 0 else n
