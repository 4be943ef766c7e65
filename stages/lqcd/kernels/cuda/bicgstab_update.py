"""Sums of BiCGstab on a GPU, each in one pass over the fields; coefficients stay on the device."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.bicgstab_update import BiCGstabCoefficients
from stages.lqcd.kernels.cuda.columns import column_shape, grid_sums
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import Launch, instance, narrowable

SUMS = {"alpha": 2, "omega": 5, "residual": 1}
"""Doubles of a right-hand side that a kernel adds up."""


def bicgstab_alpha(shadow: cupy.ndarray, v: cupy.ndarray, coefficients: BiCGstabCoefficients) -> None:
    _run("alpha", coefficients, shadow, v)


def bicgstab_omega(ends: cupy.ndarray, r: cupy.ndarray, coefficients: BiCGstabCoefficients) -> None:
    _run("omega", coefficients, *ends, r)


def bicgstab_residual(
    y: cupy.ndarray, pair: cupy.ndarray, t: cupy.ndarray, coefficients: BiCGstabCoefficients
) -> None:
    _run("residual", coefficients, y, *pair, t)


def _run(name: str, coefficients: BiCGstabCoefficients, *fields: cupy.ndarray) -> None:
    n, rows = fields[0].shape[-1], fields[0].size // fields[0].shape[-1]
    kernel = bicgstab_launch(name, n, fields[0].dtype, rows)
    numbers = coefficients.numbers, coefficients.reals
    run(kernel, *fields, *numbers, *grid_sums(kernel, SUMS[name] * n), np.int64(rows))


@narrowable
def bicgstab_launch(name: str, n: int, dtype: np.dtype, rows: int) -> Launch:
    """One of the `SUMS`, in the shape of `lane_dots`."""
    shape, work = column_shape(n, dtype), RowWork(rows, sums=True, reads=name != "residual")
    return shape.sums("bicgstab_update.cu", instance(f"bicgstab_{name}", dtype, n, shape.groups), work)
