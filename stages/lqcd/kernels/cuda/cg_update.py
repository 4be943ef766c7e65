"""Updates of CG on a GPU, one pass over the fields each; numbers stay on the device."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.cuda.columns import column_shape, grid_sums, reduction, site_shape
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import Launch, instance, narrowable
from stages.lqcd.kernels.cuda.short_numbers import codes_and_scales
from stages.lqcd.kernels.short_numbers import HalfField, ShortField


def cg_advance(x: cupy.ndarray, p: Any, r: Any, coefficients: CGCoefficients) -> None:
    n, rows = x.shape[-1], len(x)
    fields: tuple[Any, ...] = p, r
    if isinstance(r, ShortField):
        kernel, fields = short_advance_launch(n, rows), (p.words, r.words)
    elif isinstance(r, HalfField):
        kernel, fields = half_advance_launch(n, rows), (*codes_and_scales(p), *codes_and_scales(r))
    else:
        rows = x.size // n
        kernel = cg_advance_launch(n, r.dtype, rows)
    run(kernel, x, *fields, coefficients.numbers, np.int64(rows))


def cg_residual(r: Any, ap: Any, coefficients: CGCoefficients) -> None:
    n, rows = r.shape[-1], r.shape[0]
    fields: tuple[Any, ...] = r, ap
    if isinstance(r, ShortField):
        kernel, fields = short_residual_launch(n, rows), (r.words, ap.words)
    elif isinstance(r, HalfField):
        kernel, fields = half_step_launch(n, rows), (*codes_and_scales(r), *codes_and_scales(ap))
    else:
        rows = r.size // n
        kernel = reduction("cg_residual", n, r.dtype, rows)
    run(kernel, *fields, coefficients.numbers, *grid_sums(kernel, n), np.int64(rows))


@narrowable
def cg_advance_launch(n: int, dtype: np.dtype, rows: int) -> Launch:
    """Step 1 of batched CG."""
    shape = column_shape(n, dtype)
    return shape.once("cg_update.cu", instance("cg_advance", dtype, n, shape.groups), rows)


@narrowable
def short_advance_launch(n: int, sites: int) -> Launch:
    """Step 1 on short fields."""
    shape = site_shape(n)
    return shape.once("short_update.cu", f"short_advance<{n}, {shape.threads}>", sites)


@narrowable
def short_residual_launch(n: int, sites: int) -> Launch:
    """Step 3 on short fields; grid (parts, 1)."""
    shape, work = site_shape(n, resident=1024), RowWork(sites, sums=True)
    return shape.sums("short_update.cu", f"short_residual<{n}, {shape.groups}>", work)


@narrowable
def half_advance_launch(n: int, sites: int) -> Launch:
    """Step 1 on spinors in 16 bits."""
    shape = site_shape(n)
    return shape.once("half_cg.cu", f"half_advance<{n}, {shape.groups}>", sites)


@narrowable
def half_step_launch(n: int, sites: int) -> Launch:
    """Step 3 on spinors in 16 bits; grid (parts, 1)."""
    shape, work = site_shape(n), RowWork(sites, sums=True)
    return shape.sums("half_cg.cu", f"half_step<{n}, {shape.groups}>", work)
