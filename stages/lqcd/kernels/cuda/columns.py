"""Shapes of the kernels that work on each right-hand side by itself, and room for sums that end in them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.devices.group import on_each_device
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import (
    BLOCK_THREADS,
    MULTIPROCESSORS,
    Launch,
    check_rhs,
    instance,
    narrowable,
    power_of_two,
)

REDUCTIONS = {"dots": ("dots.cu", 1024), "norms2": ("dots.cu", 2048), "cg_residual": ("cg_update.cu", 1024)}
"""File of a reduction over rows, and threads of it that are resident on a multiprocessor."""

Workspace = tuple[Any, ...]


@dataclass(frozen=True)
class ColumnShape:
    """Rows or sites that a block takes at a time, a power of two, its threads, and resident blocks."""

    groups: int
    threads: int
    blocks: int

    @classmethod
    def of(cls, row: int, threads: int, resident: int) -> ColumnShape:
        """Blocks of up to so many threads, `row` of them for a row.

        resident: threads that their number puts on each multiprocessor.
        """
        groups = power_of_two(threads // row)
        return cls(groups, row * groups, max(1, resident // (row * groups)) * MULTIPROCESSORS)

    def once(self, file: str, kernel: str, rows: int, shared_bytes: int = 0) -> Launch:
        """A kernel with threads for each row (`Columns::for_one`)."""
        work = RowWork(rows, self.groups)
        return Launch(file, kernel, (ceil(rows / self.groups),), self.threads, shared_bytes, work=work)

    def sums(self, file: str, kernel: str, work: RowWork, slices: int = 1, shared_bytes: int = 0) -> Launch:
        """A kernel that sums over rows; grid (parts, slices).

        A grid that is resident as a whole, with enough loads under way, reaches the copy bandwidth.
        """
        parts = min(ceil(work.rows / (4 * self.groups)), ceil(self.blocks / slices))
        return Launch(file, kernel, (parts, slices), self.threads, shared_bytes, work=work)


def column_shape(n: int, dtype: np.dtype, threads: int = BLOCK_THREADS, resident: int = 1024) -> ColumnShape:
    """The shape of a kernel on rows ``[row, n]``; two columns share a vector if n is even."""
    check_rhs(n)
    return ColumnShape.of(n // 2 if dtype == np.complex64 and n % 2 == 0 else n, threads, resident)


def site_shape(n: int, resident: int = 512) -> ColumnShape:
    """The shape of a kernel with a thread for each right-hand side of a site."""
    check_rhs(n)
    return ColumnShape.of(n, BLOCK_THREADS, resident)


@narrowable
def reduction(kernel: str, n: int, dtype: np.dtype, rows: int, slices: int = 1) -> Launch:
    """A reduction of `REDUCTIONS` over `slices` runs of `rows` rows; grid (parts, slices)."""
    file, resident = REDUCTIONS[kernel]
    shape = column_shape(n, dtype, 256 if n < 8 else 512, resident)
    work = RowWork(rows, slices=slices, sums=slices == 1)
    return shape.sums(file, instance(kernel, dtype, n, shape.groups), work, slices)


def grid_sums(launch: Launch, values: int) -> Workspace:
    """Room for `values` doubles from each block, and counters that are zero before and after each launch.

    For reductions that finish in the launch that begins them (`grid_sum.cuh`). They are kept for the life of
    the process, so that a captured graph may hold them; reductions of one process share them and must run in
    one stream. Where devices share the launch, each has its own.
    """
    parts, slices = launch.grid
    device = cupy.cuda.get_device_id
    return on_each_device(lambda part: _workspace(parts * slices * values, slices, device(), part))


@cache
def _workspace(doubles: int, counters: int, device: int, part: int) -> Workspace:
    return cupy.empty(doubles), cupy.zeros(counters + counters % 4, np.uint32)
