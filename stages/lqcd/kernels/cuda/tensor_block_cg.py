"""Launches of the pass and the sums of block CGrQ on tensor cores: widths that are multiples of 8."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import ceil

import numpy as np

from stages.lqcd.kernels.cuda.launch import (
    BLOCK_SHARED,
    MULTIPROCESSOR_SHARED,
    MULTIPROCESSORS,
    Launch,
    instance,
)

NARROWEST = 16
"""Below, bandwidth is the limit and tiles of 16 columns are half empty."""

TENSOR_STEP = "tensor_step.cu"

SINGLE = np.dtype(np.complex64)

REGISTERS = 65536
"""Of a multiprocessor."""


@dataclass(frozen=True)
class TensorStepShape:
    """Row tiles of 16 and column tiles of 8 of a warp, and blocks of threads that share a multiprocessor."""

    row_tiles: int
    column_tiles: int
    resident: int


@dataclass(frozen=True)
class TensorGramsShape:
    """Warps that share the rows of a chunk, rows of a chunk, resident blocks."""

    warp_slices: int
    chunk: int
    resident: int


def coefficient_tiles_launch(n: int, dtype: np.dtype, matrices: int) -> Launch:
    """So many matrices in the order that the kernels here read, ``[matrices, N^2]`` of this type."""
    return Launch(TENSOR_STEP, instance("coefficient_tiles", dtype, n), (ceil(n * n / 256), matrices), 256)


@cache
def tensor_step_in_shape(n: int, dtype: np.dtype, rows: int, shape: TensorStepShape) -> Launch:
    """The pass over Q, P and A P, in double over X as well."""
    kernel = instance("tensor_step", dtype, n, shape.row_tiles, shape.column_tiles, shape.resident)
    return _sweep(kernel, n, rows, shape, 3 * _tile_bytes(n, dtype, shape.row_tiles))


@cache
def tensor_solution_in_shape(n: int, rows: int, shape: TensorStepShape) -> Launch:
    """X in double from P in single precision."""
    kernel = f"tensor_solution<{n}, {shape.row_tiles}, {shape.column_tiles}, {shape.resident}>"
    return _sweep(kernel, n, rows, shape, _tile_bytes(n, SINGLE, shape.row_tiles))


def _sweep(kernel: str, n: int, rows: int, shape: TensorStepShape, shared: int) -> Launch:
    blocks = min(ceil(rows / (16 * shape.row_tiles)), shape.resident * MULTIPROCESSORS)
    return Launch(TENSOR_STEP, kernel, (blocks,), 4 * n // shape.column_tiles, shared)


@cache
def tensor_step_candidates(n: int, dtype: np.dtype) -> list[TensorStepShape]:
    """Shapes worth timing, the best guess first; none for widths that are no multiples of 8."""
    return _candidates(n, lambda rows: 3 * _tile_bytes(n, dtype, rows), dtype.itemsize // 8, dtype.itemsize // 8)


@cache
def tensor_solution_candidates(n: int) -> list[TensorStepShape]:
    """Likewise."""
    return _candidates(n, lambda rows: _tile_bytes(n, SINGLE, rows), 1, 2)


def _candidates(n: int, shared_of: Callable[[int], int], products: int, words: int) -> list[TensorStepShape]:
    """Shapes for a lane that holds the sums of so many products of numbers of so many words."""
    if n % 8 or n < NARROWEST:
        return []
    shapes = []
    for rows, columns in ((2, 1), (4, 1), (1, 2), (2, 2), (1, 1)):
        threads, shared = 4 * n // columns, shared_of(rows)
        registers = _registers(rows * columns, columns, products, words)
        resident = min(MULTIPROCESSOR_SHARED // (shared + 1024), REGISTERS // (threads * registers), 16)
        if n // 8 % columns == 0 and resident and shared <= BLOCK_SHARED and registers <= 255:
            shapes.append(TensorStepShape(rows, columns, resident))
    return shapes


def _registers(tiles: int, columns: int, products: int, words: int) -> int:
    """Sums, coefficients of now and of next, rows, and the rest."""
    return 8 * products * words * tiles + 8 * products * words * columns + 24 * words + (88 if words == 1 else 56)


def _tile_bytes(n: int, dtype: np.dtype, row_tiles: int) -> int:
    """Rows of a block, with the padding of `StepWarp`."""
    apart, row = 16 if dtype == np.complex128 else 64, n * dtype.itemsize
    return 16 * row_tiles * (row + (apart - row) % 128)


@cache
def tensor_grams_in_shape(n: int, dtype: np.dtype, rows: int, shape: TensorGramsShape, most: int) -> Launch:
    """The sums in a shape; `most`: rows that a warp adds up in single precision."""
    at_once = shape.resident * MULTIPROCESSORS
    blocks = ceil(rows / (most * shape.warp_slices * at_once)) * at_once
    return Launch(
        "tensor_grams.cu",
        instance("tensor_grams", dtype, n, shape.warp_slices, shape.chunk, shape.resident),
        (min(ceil(rows / shape.chunk), blocks),),
        _warps(n) * shape.warp_slices * 32,
        _grams_shared(n, dtype, shape.warp_slices, shape.chunk),
    )


@cache
def tensor_grams_candidates(n: int, dtype: np.dtype) -> list[TensorGramsShape]:
    """Shapes worth timing, the best guess first; none for widths that are no multiples of 8."""
    if n % 8 or n < NARROWEST:
        return []
    words, pairs = dtype.itemsize // 8, ceil(n / 16) // 2 + 1
    shapes = []
    for slices, steps in product((1, 2, 4), (2, 1, 4)):
        chunk, threads = 8 * slices * steps, 32 * _warps(n) * slices
        shared = _grams_shared(n, dtype, slices, chunk)
        registers = words * (16 * pairs + 24) + (64 if words == 1 else 48)
        resident = min(MULTIPROCESSOR_SHARED // (shared + 1024), REGISTERS // (threads * registers), 8)
        if shared <= BLOCK_SHARED and threads <= 768 and resident:
            shapes.append(TensorGramsShape(slices, chunk, resident))
    return shapes


def _warps(n: int) -> int:
    """One for each group of 16 columns of each matrix."""
    return 3 * ceil(n / 16)


def _grams_shared(n: int, dtype: np.dtype, slices: int, chunk: int) -> int:
    """A ring of three stages of three fields, room to read past it; later sums over slices."""
    ring = 3 * 3 * chunk * (n * dtype.itemsize + 32) + 8 * dtype.itemsize
    return max(ring, 8 * 8 * _warps(n) * 32 * slices // 2)
