"""Shapes of the kernels that work on each right-hand side by itself, and of the end of every reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import ceil

import numpy as np

from stages.errors import InputError
from stages.lqcd.kernels.cuda.launch.base import (
    BLOCK_SHARED,
    MULTIPROCESSORS,
    Launch,
    check_rhs,
    extents_of,
    instance,
    power_of_two,
)
from stages.lqcd.kernels.cuda.tuning.choice import Options, tuned
from stages.lqcd.lattice.geometry import Lattice

REDUCTIONS = {"dots": ("dots.cu", 1024), "norms2": ("dots.cu", 2048), "cg_residual": ("cg_update.cu", 1024)}
"""File of a reduction over rows, and threads of it that are resident on a multiprocessor."""

LANE_FIELDS = 4
"""Fields of a basis whose sums a thread keeps: y is read once for so many of them."""

GRAM_THREADS, GRAM_BLOCKS = 128, 4
"""Of a block that sums the products of a few fields, and blocks on a multiprocessor: with four fields and 16
right-hand sides 0.90 of the copy bandwidth of an H200, with three blocks 0.80."""

REPORT = Launch("report.cu", "report", (1,), 128)
"""Up to some hundred numbers to the host."""


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
        block = _vectors(n, dtype) * shape.groups
        return Launch(file, instance(kernel, dtype, n, shape.groups), (parts, slices), block)

    return Options(_column_shapes(n, dtype, threads, (resident, 2 * resident, resident // 2)), launch)


@tuned
def cg_advance(n: int, dtype: np.dtype, rows: int) -> Options[ColumnShape]:
    """Step 1 of batched CG, with a thread for each vector of each row (`Columns::for_one`)."""
    groups = _groups(n, dtype, (256, 128, 512))

    def launch(shape: ColumnShape) -> Launch:
        block = _vectors(n, dtype) * shape.groups
        return Launch("cg_update.cu", instance("cg_advance", dtype, n, shape.groups), (shape.blocks,), block)

    return Options(tuple(ColumnShape(g, ceil(rows / g)) for g in groups), launch)


@tuned
def lane_dots(n: int, dtype: np.dtype, rows: int, count: int) -> Options[ColumnShape]:
    """Sums over a basis of `count` fields; grid (parts, groups of `LANE_FIELDS` fields)."""
    fields = min(LANE_FIELDS, 1 << (count - 1).bit_length())
    slices = ceil(count / fields)

    def launch(shape: ColumnShape) -> Launch:
        parts = min(ceil(rows / (4 * shape.groups)), ceil(shape.blocks / slices))
        kernel = instance("lane_dots", dtype, n, fields, shape.groups)
        return Launch("lane_blas.cu", kernel, (parts, slices), _vectors(n, dtype) * shape.groups)

    return Options(_column_shapes(n, dtype, (256, 128), (1024, 512)), launch)


def lane_gram(n: int, dtype: np.dtype, rows: int, count: int) -> Launch:
    """Products of `count` fields: many registers a thread, and so few threads; grid (parts, 1)."""
    vectors = _vectors(n, dtype)
    groups = power_of_two(max(1, GRAM_THREADS // vectors))
    parts = min(ceil(rows / (4 * groups)), GRAM_BLOCKS * MULTIPROCESSORS)
    return Launch(
        "lane_gram.cu", instance("lane_gram", dtype, n, count, groups), (parts, 1), vectors * groups
    )


def lane_least_squares(n: int, count: int) -> Launch:
    """A thread for each right-hand side."""
    return Launch("lane_gram.cu", f"lane_least_squares<double, {count}>", (ceil(n / 32),), 32)


@tuned
def lane_update(n: int, dtype: np.dtype, rows: int, count: int) -> Options[ColumnShape]:
    """``y += sum a xs`` over `count` fields, with a thread for each vector of each row (`Columns::for_one`).

    Raises InputError where the coefficients exceed a block's shared memory.
    """
    return _updates("lane_update", n, dtype, rows, count)


@tuned
def lane_polynomial(n: int, dtype: np.dtype, rows: int, count: int) -> Options[ColumnShape]:
    """Shape of `lane_update` for two fields that are updated from the same basis."""
    return _updates("lane_polynomial", n, dtype, rows, count)


def _updates(kernel: str, n: int, dtype: np.dtype, rows: int, count: int) -> Options[ColumnShape]:
    shared = count * n * dtype.itemsize
    if shared > BLOCK_SHARED:
        raise InputError(
            f"a lane update takes up to {BLOCK_SHARED // (n * dtype.itemsize)} fields of {n} right-hand "
            f"sides, got {count}: split the basis"
        )

    def launch(shape: ColumnShape) -> Launch:
        block = _vectors(n, dtype) * shape.groups
        name = instance(kernel, dtype, n, shape.groups)
        return Launch("lane_blas.cu", name, (shape.blocks,), block, shared)

    groups = _groups(n, dtype, (256, 128, 512))
    return Options(tuple(ColumnShape(g, ceil(rows / g)) for g in groups), launch)


@tuned
def one_link_current(lattice: Lattice, n: int, dtype: np.dtype) -> Options[ColumnShape]:
    """Partial currents, float64 ``[parts, t, mu, n]``; grid (parts, t)."""
    slices = lattice.time_extent

    def launch(shape: ColumnShape) -> Launch:
        parts = min(ceil(lattice.sites_per_slice / shape.groups), ceil(shape.blocks / slices))
        kernel = instance("current_partials", dtype, extents_of(lattice), n, shape.groups)
        block = _vectors(n, dtype) * shape.groups
        return Launch("one_link_current.cu", kernel, (parts, slices), block)

    return Options(_column_shapes(n, dtype, (256, 128, 64), (2048, 4096, 1024)), launch)


@cache
def sum_partials(count: int) -> Launch:
    """The second stage of reductions to `count` doubles, matrices and currents, with few partial sums."""
    return Launch("sum_partials.cu", "sum_partials", (ceil(count / 32),), 1024)


@cache
def sum_rows(count: int, n: int) -> Launch:
    """The second stage of a reduction with `count` (thousands of) partial sums, float64 ``[count, n]``."""
    groups = power_of_two(512 // n)
    blocks = min(ceil(count / (4 * groups)), MULTIPROCESSORS)
    return Launch("sum_rows.cu", f"sum_rows<{n}, {groups}>", (blocks,), n * groups)


def _column_shapes(
    n: int, dtype: np.dtype, threads: Sequence[int], resident: Sequence[int]
) -> tuple[ColumnShape, ...]:
    """Blocks of up to so many threads, in a number that puts so many threads on each multiprocessor."""
    block = {groups: _vectors(n, dtype) * groups for groups in _groups(n, dtype, threads)}
    return tuple(
        ColumnShape(groups, max(1, most // block[groups]) * MULTIPROCESSORS)
        for groups, most in product(block, resident)
    )


def _groups(n: int, dtype: np.dtype, threads: Sequence[int]) -> list[int]:
    """Rows that blocks of up to so many threads take at a time: powers of two, which sums need."""
    return list(dict.fromkeys(power_of_two(most // _vectors(n, dtype)) for most in threads))


def _vectors(n: int, dtype: np.dtype) -> int:
    """Threads of a row for a kernel on columns; two columns share a vector if n is even."""
    check_rhs(n)
    return n // 2 if dtype == np.complex64 and n % 2 == 0 else n
