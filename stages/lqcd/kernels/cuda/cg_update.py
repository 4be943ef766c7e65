"""Updates of CG on a GPU, one pass over the fields each; numbers stay on the device."""

from __future__ import annotations

from math import ceil
from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.cuda.columns import reduction, row_groups, row_threads
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.grid_sums import grid_sums
from stages.lqcd.kernels.cuda.half_update import half_pass, half_sum
from stages.lqcd.kernels.cuda.launch import (
    BLOCK_THREADS,
    MULTIPROCESSORS,
    Launch,
    check_rhs,
    instance,
    narrowable,
    power_of_two,
)
from stages.lqcd.kernels.cuda.short_numbers import codes_and_scales, on_vectors
from stages.lqcd.kernels.short_numbers import HalfField, ShortField


def cg_advance(x: cupy.ndarray, p: Any, r: Any, coefficients: CGCoefficients) -> None:
    if isinstance(r, ShortField):
        kernel = short_advance_launch(x.shape[2], len(x))
        run(kernel, x, p.words, r.words, coefficients.numbers, np.int64(len(x)))
        return
    if isinstance(r, HalfField):
        kernel, fields = half_advance_launch(x.shape[2], len(x)), (*codes_and_scales(p), *codes_and_scales(r))
        run(kernel, x, *fields, coefficients.numbers, np.int64(len(x)))
        return
    n, rows = r.shape[-1], r.size // r.shape[-1]
    kernel = cg_advance_launch(n, r.dtype, rows)
    run(kernel, x, p, r, coefficients.numbers, np.int64(rows))


def cg_residual(r: Any, ap: Any, coefficients: CGCoefficients) -> None:
    if isinstance(r, ShortField):
        sites, _, n = r.shape
        kernel = short_residual_launch(n, sites)
        run(kernel, r.words, ap.words, coefficients.numbers, *grid_sums(kernel, n), np.int64(sites))
        return
    if isinstance(r, HalfField):
        sites, _, n = r.shape
        kernel, fields = half_step_launch(n, sites), (*codes_and_scales(r), *codes_and_scales(ap))
        run(kernel, *fields, coefficients.numbers, *grid_sums(kernel, n), np.int64(sites))
        return
    n, rows = r.shape[-1], r.size // r.shape[-1]
    kernel = reduction("cg_residual", n, r.dtype, rows)
    run(kernel, r, ap, coefficients.numbers, *grid_sums(kernel, n), np.int64(rows))


@narrowable
def cg_advance_launch(n: int, dtype: np.dtype, rows: int) -> Launch:
    """Step 1 of batched CG, with a thread for each vector of each row (`Columns::for_one`)."""
    groups = row_groups(n, dtype, BLOCK_THREADS)
    name, block = instance("cg_advance", dtype, n, groups), row_threads(n, dtype) * groups
    return Launch("cg_update.cu", name, (ceil(rows / groups),), block, work=RowWork(rows, groups))


@narrowable
def short_advance_launch(n: int, sites: int) -> Launch:
    """Step 1 on short fields, a thread for each vector."""
    return on_vectors("short_update.cu", f"short_advance<{n}", sites, n)


@narrowable
def short_residual_launch(n: int, sites: int) -> Launch:
    """Step 3 on short fields: a thread keeps to one right-hand side; grid (parts, 1)."""
    check_rhs(n)
    groups = power_of_two(BLOCK_THREADS // n)
    parts = min(ceil(sites / (4 * groups)), 1024 // (n * groups) * MULTIPROCESSORS)
    kernel, work = f"short_residual<{n}, {groups}>", RowWork(sites, sums=True)
    return Launch("short_update.cu", kernel, (parts, 1), n * groups, work=work)


@narrowable
def half_advance_launch(n: int, sites: int) -> Launch:
    """Step 1 on spinors in 16 bits."""
    return half_pass("half_cg.cu", "half_advance<{}>", n, sites)


@narrowable
def half_step_launch(n: int, sites: int) -> Launch:
    """Step 3 on spinors in 16 bits; grid (parts, 1)."""
    return half_sum("half_cg.cu", "half_step<{}>", n, sites)
