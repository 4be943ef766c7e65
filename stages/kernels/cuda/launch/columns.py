"""Shapes of the kernels that work on each right-hand side by itself, and of the end of every reduction."""

from __future__ import annotations

from functools import cache
from math import ceil

import numpy as np

from stages.kernels.cuda.launch.base import (
    BLOCK_THREADS,
    MULTIPROCESSORS,
    Launch,
    check_rhs,
    extents_of,
    instance,
    power_of_two,
)
from stages.lattice.geometry import Lattice

REDUCTIONS = {"dots": ("dots.cu", 1024), "norms2": ("dots.cu", 2048), "cg_residual": ("cg_update.cu", 1024)}
"""File of a reduction over rows, and threads of it that are resident on a multiprocessor."""

REPORT = Launch("report.cu", "report", (1,), 128)
"""Up to some hundred numbers to the host."""


@cache
def reduction(kernel: str, n: int, dtype: np.dtype, rows: int, slices: int = 1) -> Launch:
    """A reduction of `REDUCTIONS` over `slices` runs of `rows` rows; grid (parts, slices).

    A grid that is resident as a whole, with enough loads under way, reaches the copy bandwidth.
    """
    file, resident = REDUCTIONS[kernel]
    threads, groups = _column_threads(n, dtype, BLOCK_THREADS if n < 8 else 2 * BLOCK_THREADS)
    parts = min(ceil(rows / (4 * groups)), ceil(resident // threads * MULTIPROCESSORS / slices))
    return Launch(file, instance(kernel, dtype, n, groups), (parts, slices), threads)


@cache
def element_kernel(file: str, kernel: str, n: int, dtype: np.dtype, rows: int) -> Launch:
    """A kernel on per-rhs columns with a thread for each vector of each row (`Columns::for_one`)."""
    threads, groups = _column_threads(n, dtype)
    return Launch(file, instance(kernel, dtype, n, groups), (ceil(rows / groups),), threads)


@cache
def one_link_current(lattice: Lattice, n: int, dtype: np.dtype) -> Launch:
    """Partial currents, float64 ``[parts, t, mu, n]``; grid (parts, t)."""
    threads, groups = _column_threads(n, dtype)
    slices = lattice.time_extent
    parts = min(ceil(lattice.sites_per_slice / groups), ceil(8 * MULTIPROCESSORS / slices))
    kernel = instance("current_partials", dtype, extents_of(lattice), n, groups)
    return Launch("one_link_current.cu", kernel, (parts, slices), threads)


@cache
def sum_partials(count: int) -> Launch:
    """The second stage of every reduction, for `count` doubles."""
    return Launch("sum_partials.cu", "sum_partials", (ceil(count / 32),), 1024)


@cache
def sum_rows(count: int, n: int) -> Launch:
    """The second stage of a reduction with `count` (thousands of) partial sums, float64 ``[count, n]``."""
    groups = power_of_two(512 // n)
    blocks = min(ceil(count / (4 * groups)), MULTIPROCESSORS)
    return Launch("sum_rows.cu", f"sum_rows<{n}, {groups}>", (blocks,), n * groups)


def _column_threads(n: int, dtype: np.dtype, most: int = BLOCK_THREADS) -> tuple[int, int]:
    """Threads and groups of a block for a kernel on columns; two columns share a vector if n is even."""
    check_rhs(n)
    width = 2 if dtype == np.complex64 and n % 2 == 0 else 1
    groups = power_of_two(most // (n // width))
    return n // width * groups, groups
