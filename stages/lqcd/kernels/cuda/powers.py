"""Small matrices of s-step conjugate gradients stay on the device; tall vectors are read once each time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import ceil
from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.columns import column_shape
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.group import PerDevice, current_group, on_each_device
from stages.lqcd.kernels.cuda.devices.own_rows import local
from stages.lqcd.kernels.cuda.devices.partition import OwnWork, PartialWork, RowWork
from stages.lqcd.kernels.cuda.lane_blas import lane_update_launch
from stages.lqcd.kernels.cuda.launch import MULTIPROCESSORS, Launch, check_rhs, instance, narrowable
from stages.lqcd.kernels.powers import Coordinates

WARPS = 8
"""Of a block that sums on tensor cores."""
SUM_WARPS = 4
"""Of a block that sums by vector units: tiles of products of the same rows."""
RUNS = 16
"""Warps of a block that adds up shares: each sums a run of them."""
TILE = 3
"""Vectors on either side of the products that a thread sums (`powers_exact_gram`)."""


def add_earlier(powers: cupy.ndarray, i: int, factor: float) -> None:
    y, x = powers[i + 1], powers[i - 1]
    n, rows = y.shape[-1], y.size // y.shape[-1]
    kernel = _at_once(n, y.dtype, rows)
    (factors,) = on_each_device(lambda part: (_factors(n, factor, cupy.cuda.get_device_id(), part),))
    run(kernel, y, x, factors, np.uintp(0), np.int64(rows), np.int32(1))


def gram(powers: cupy.ndarray, out: Coordinates) -> None:
    steps, rhs, rows = _shape(powers)
    if out.doubled:
        kernel = exact_gram_launch(steps, rhs, rows)
    else:
        kernel = gram_launch(steps, rhs, powers.dtype, rows)
    _sum(kernel, powers, (out.high, out.low), out.doubled)


def magnitudes(powers: cupy.ndarray) -> cupy.ndarray:
    steps, rhs, rows = _shape(powers)
    high, low = (cupy.empty((rhs, 2 * steps + 1, 2 * steps + 1)) for _ in range(2))
    _sum(gram_launch(steps, rhs, powers.dtype, rows, magnitudes=True), powers, (high, low), False)
    return high


def _sum(kernel: Launch, powers: cupy.ndarray, out: tuple[cupy.ndarray, ...], doubled: bool) -> None:
    """A kernel of shares, and the sum of these."""
    steps, rhs, rows = _shape(powers)
    parts, pairs = kernel.grid[0], (2 * steps + 1) * (steps + 1)
    doubles = parts * rhs * pairs * (2 if doubled else 1)
    (partials,) = on_each_device(lambda part: (_workspace(doubles, cupy.cuda.get_device_id(), part),))
    run(kernel, powers, partials, np.int64(rows))
    run(gram_sum_launch(steps, rhs, doubled), partials, *out, np.int32(parts))


def conjugate_gradients(coordinates: Coordinates, least: float) -> None:
    of = coordinates
    kernel = coordinates_launch(len(of.x) - 1, len(of.targets2), of.doubled)
    *results, change = _of_devices(of)
    run(kernel, of.high, of.low, change, of.targets2, of.restarted, *results, np.float64(least))


def update(
    y: cupy.ndarray,
    powers: cupy.ndarray,
    last: cupy.ndarray,
    image: cupy.ndarray,
    coordinates: Coordinates,
    step: int,
) -> None:
    steps, rhs, rows = _shape(powers)
    kernel = update_launch(steps, rhs, powers.dtype, rows)
    x, r, p, report, change = _of_devices(coordinates)
    factors = (x, r, p, change, report, coordinates.restarted)
    run(kernel, y, powers, last, image, *factors, np.int64(rows), np.int32(step))


def _of_devices(of: Coordinates) -> tuple[Any, ...]:
    """What the steps are taken in, on each device its own."""
    first, group = (of.x, of.r, of.p, of.report, of.change), current_group()
    if group is None:
        return first
    if not of.copies:
        of.copies.extend(group.together(lambda part: tuple(map(local, first)) if part else first))
    return tuple(PerDevice(each) for each in zip(*of.copies, strict=True))


def _shape(powers: cupy.ndarray) -> tuple[int, int, int]:
    """Steps, right-hand sides and rows of paired powers."""
    return len(powers) - 1, powers.shape[-1] // 2, powers[0].size // powers.shape[-1]


@cache
def _workspace(doubles: int, device: int, part: int) -> cupy.ndarray:
    """Kept for the life of the process, as those of `grid_sums`."""
    return cupy.empty(doubles)


@cache
def _factors(n: int, factor: float, device: int, part: int) -> cupy.ndarray:
    """Kept likewise: a captured graph may hold it."""
    return cupy.full((1, n), factor, np.complex128)


def _at_once(n: int, dtype: np.dtype, rows: int) -> Launch:
    """`lane_update` into a field that no other device has read yet, so that none is waited for."""
    kernel = lane_update_launch(n, dtype, rows, 1)
    assert isinstance(kernel.work, RowWork)
    return replace(kernel, work=replace(kernel.work, reads=True))


@narrowable
def gram_launch(steps: int, n: int, dtype: np.dtype, rows: int, magnitudes: bool = False) -> Launch:
    """Products on tensor cores; grid (parts, groups of right-hand sides)."""
    check_rhs(n)
    columns = min(WARPS, 1 << (n - 1).bit_length())
    kernel = instance("powers_gram", dtype, n, steps, WARPS, columns, str(magnitudes).lower())
    parts = min(ceil(rows / (4 * (WARPS // columns))), max(1, 4 * MULTIPROCESSORS * columns // n))
    grid, work = (parts, ceil(n / columns)), RowWork(rows, reads=True)
    return Launch("powers_gram.cu", kernel, grid, 32 * WARPS, work=work)


@narrowable
def exact_gram_launch(steps: int, n: int, rows: int) -> Launch:
    """Products of double vectors by vector units; grid (parts, right-hand sides, groups of tiles)."""
    check_rhs(n)
    tiles = ceil((2 * steps + 1) / TILE)
    groups = ceil(tiles * (tiles + 1) / 2 / SUM_WARPS)
    kernel = f"powers_exact_gram<{n}, {steps}, {SUM_WARPS}>"
    parts = min(ceil(rows / 32), max(1, 4 * MULTIPROCESSORS // (n * groups)))
    grid, work = (parts, n, groups), RowWork(rows, reads=True)
    return Launch("powers_gram.cu", kernel, grid, 32 * SUM_WARPS, work=work)


@narrowable
def gram_sum_launch(steps: int, n: int, doubled: bool) -> Launch:
    """The sum of shares; grid (groups of 32 pairs, right-hand sides)."""
    number = "DoubleDouble" if doubled else "double"
    pairs = ceil((2 * steps + 1) * (steps + 1) / 32)
    kernel = f"powers_gram_sum<{number}, {n}, {steps}, {RUNS}>"
    return Launch("powers_gram.cu", kernel, (pairs, n), 32 * RUNS, work=PartialWork(pairs * n, 64))


@narrowable
def coordinates_launch(steps: int, n: int, doubled: bool) -> Launch:
    """A warp for each right-hand side."""
    kernel = f"coordinates<{'DoubleDouble' if doubled else 'double'}, {n}, {steps}>"
    return Launch("coordinates.cu", kernel, (n,), 32, work=OwnWork())


@narrowable
def update_launch(steps: int, n: int, dtype: np.dtype, rows: int) -> Launch:
    """A thread for each vector of each row of y; coefficients lie in shared memory."""
    check_rhs(n)
    shape, shared = column_shape(n, dtype, 128), 5 * (2 * steps + 1) * n * dtype.itemsize // 2
    launch = shape.once(
        "powers_update.cu", instance("powers_update", dtype, n, steps, shape.groups), rows, shared
    )
    return replace(launch, work=RowWork(rows, shape.groups, clears=True))
