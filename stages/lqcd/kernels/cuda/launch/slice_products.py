"""Runs of rows that the products on time slices are cut into, where they lie, and how their sums are added.

All offsets are in elements of the array concerned; cuBLAS takes them as pointers, so that one call does the
products of all slices, runs and spins, whatever their strides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.cuda.launch.base import BLOCK_THREADS, Launch, divisors, instance
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, SPINS

SINGLE_ROWS, DOUBLE_ROWS = 1024, 4096
"""Most rows of a run. In single precision it bounds what is summed before sums are added up in double."""

PARTIAL_BYTES = 128 << 20
"""Of the sums of runs that are held at a time, if one run's fit into it."""


@dataclass(frozen=True)
class Runs:
    """Products left^H right over runs of `rows` rows, ``[slice, run, group]``: the sum over runs is wanted.

    left, right: offsets of the first rows, int64; left_stride, right_stride: from one row to the next;
    left_columns, right_columns: of the matrices.
    """

    rows: int
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    left_stride: int
    right_stride: int
    left_columns: int
    right_columns: int

    def product_bytes(self, dtype: np.dtype) -> int:
        """Bytes of the results of one run of one slice."""
        return self.left.shape[2] * self.left_columns * self.right_columns * dtype.itemsize

    def chunks(self, dtype: np.dtype) -> Iterator[tuple[slice, slice]]:
        """Slices and runs whose results are held together: whole slices, or some runs of one."""
        slices, runs, _ = self.left.shape
        fitting = max(1, PARTIAL_BYTES // self.product_bytes(dtype))
        taken, height = max(1, fitting // runs), min(runs, fitting)
        for first in range(0, slices, taken):
            for run in range(0, runs, height):
                yield slice(first, first + taken), slice(run, run + height)

    def workspace_bytes(self, dtype: np.dtype) -> int:
        """Results held at a time and three pointers to each product."""
        slices, runs = next(self.chunks(dtype))
        count = len(range(len(self.left))[slices]) * len(range(self.left.shape[1])[runs])
        return count * (self.product_bytes(dtype) + 3 * 8 * self.left.shape[2])


def sink_runs(vectors: tuple[int, ...], fields: int, n: int, first: int, dtype: np.dtype) -> Runs:
    """Runs of vectors ``[time, 2, site, 3, k]`` with slices `first`, ... of solutions ``[2, fields, 12, n]``.

    A run has one parity and colour; groups are the spins. Rows are sites: 3 k elements apart in vectors, 12 n
    in solutions.
    """
    times, _, sites, _, k = vectors
    rows = run_rows(sites, dtype)
    t, parity, run, colour, spin = np.indices((times, 2, sites // rows, COLOURS, SPINS), dtype=np.int64)
    site = run * rows
    left = (((t * 2 + parity) * sites + site) * COLOURS + colour) * k
    right = ((parity * fields + (first + t) * sites + site) * COMPONENTS + spin * COLOURS + colour) * n
    shape = (times, -1, SPINS)
    return Runs(rows, left.reshape(shape), right.reshape(shape), COLOURS * k, COMPONENTS * n, k, n)


def gram_runs(left: tuple[int, ...], columns: int, dtype: np.dtype) -> Runs:
    """Runs of left ``[time, 2, site, 3, k]`` with as many columns of the same rows; there is one group."""
    times, _, sites, _, k = left
    rows = run_rows(sites, dtype)
    start = np.arange(times * 2 * COLOURS * (sites // rows), dtype=np.int64).reshape(times, -1, 1) * rows
    return Runs(rows, start * k, start * columns, k, columns, k, columns)


@cache
def run_rows(rows: int, dtype: np.dtype) -> int:
    """The longest run that divides so many rows; a slice's sites have many divisors."""
    most = SINGLE_ROWS if dtype == np.complex64 else DOUBLE_ROWS
    return max(height for height in divisors(rows) if height <= most)


@cache
def add_runs(results: int, slices: int, dtype: np.dtype) -> Launch:
    """Sums over runs of so many results of each slice; grid (results, slices)."""
    grid = (ceil(results / BLOCK_THREADS), slices)
    return Launch("slice_products.cu", instance("add_runs", dtype), grid, BLOCK_THREADS)
