"""Every field is read once; results stay on the device."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.columns import ColumnShape
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.grid_sums import grid_sums
from stages.lqcd.kernels.cuda.half_field import codes_and_scales
from stages.lqcd.kernels.cuda.launch import (
    BLOCK_THREADS,
    MULTIPROCESSORS,
    Launch,
    check_rhs,
    listed,
    power_of_two,
)
from stages.lqcd.kernels.cuda.tuning.choice import Options, tuned
from stages.lqcd.kernels.half_field import HalfField
from stages.lqcd.kernels.half_update import MOST_FIELDS

SUMMING = 512
"""Threads of a reduction that are resident on a multiprocessor."""


def half_dots(xs: Sequence[HalfField], y: HalfField) -> cupy.ndarray:
    sites, _, n = y.shape
    kernel = half_reduction_launch("half_dots", n, sites, len(xs))
    sums = cupy.empty((len(xs), n), np.complex128)
    workspace = grid_sums(kernel, 2 * len(xs) * n)
    run(kernel, *_operands("half_dots", xs), *codes_and_scales(y), sums, *workspace, np.int64(sites))
    return sums


def half_update(
    y: HalfField, xs: Sequence[HalfField], a: cupy.ndarray, scale: cupy.ndarray | None = None
) -> None:
    sites, _, n = y.shape
    factor = np.uintp(0) if scale is None else cupy.ascontiguousarray(scale, np.complex128)
    coefficients = cupy.ascontiguousarray(a, np.complex128)
    operands = *codes_and_scales(y), *_operands("half_update", xs)
    run(half_update_launch(n, sites, len(xs)), *operands, coefficients, factor, np.int64(sites))


def half_step(x: cupy.ndarray, p: HalfField, r: HalfField, t: HalfField, a: cupy.ndarray) -> cupy.ndarray:
    sites, _, n = r.shape
    kernel, norms2 = half_reduction_launch("half_step", n, sites), cupy.empty(n)
    operands = x, *(each for field in (p, r, t) for each in codes_and_scales(field))
    coefficients = cupy.ascontiguousarray(a, np.complex128)
    run(kernel, *operands, coefficients, norms2, *grid_sums(kernel, n), np.int64(sites))
    return norms2


def _operands(function: str, xs: Sequence[HalfField]) -> tuple[Any, ...]:
    """Codes and scales of all fields that a kernel has room for."""
    absent = [None] * (MOST_FIELDS[function] - len(xs))
    return tuple(each for x in (*xs, *absent) for each in codes_and_scales(x))


@tuned
def half_reduction_launch(kernel: str, n: int, sites: int, fields: int = 0) -> Options[ColumnShape]:
    """'half_dots' of so many fields, or 'half_step'; grid (parts, 1)."""
    check_rhs(n)
    groups = power_of_two(BLOCK_THREADS // n)
    parts = min(ceil(sites / (4 * groups)), SUMMING // (n * groups) * MULTIPROCESSORS)

    def launch(shape: ColumnShape) -> Launch:
        arguments = listed((n, shape.groups, *([fields] if fields else [])))
        grid, work = (shape.blocks, 1), RowWork(sites, sums=True, reads=kernel == "half_dots")
        return Launch("half_update.cu", f"{kernel}<{arguments}>", grid, n * shape.groups, work=work)

    return Options((ColumnShape(groups, parts),), launch)


@tuned
def half_update_launch(n: int, sites: int, fields: int) -> Options[ColumnShape]:
    """The update by so many fields, with a thread for each right-hand side of each site."""
    check_rhs(n)
    groups = power_of_two(BLOCK_THREADS // n)

    def launch(shape: ColumnShape) -> Launch:
        name, work = f"half_update<{n}, {shape.groups}, {fields}>", RowWork(sites, shape.groups)
        return Launch("half_update.cu", name, (shape.blocks,), n * shape.groups, work=work)

    return Options((ColumnShape(groups, ceil(sites / groups)),), launch)
