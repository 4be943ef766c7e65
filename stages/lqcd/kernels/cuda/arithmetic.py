"""Sums and multiples of complex fields, and of their columns: a kernel each, on each device's own rows.

Products and sums are rounded one by one, as those of array expressions.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.devices.own_rows import elementwise
from stages.lqcd.kernels.cuda.fields import empty_field


def _kernel(name: str, inputs: str, output: str, operation: str) -> cupy.ElementwiseKernel:
    return cupy.ElementwiseKernel(inputs, output, operation, name, options=("--fmad=false",))


DIFFERENCE = _kernel("difference", "X x, Y y", "T out", "out = T(x.real() - y.real(), x.imag() - y.imag())")
SCALE = _kernel(
    "scale",
    "float64 number, X x",
    "T out",
    "const X::value_type factor = number; out = T(x.real() * factor, x.imag() * factor)",
)
WEIGHTED_SUM = _kernel(
    "weighted_sum",
    "float64 a, float64 b, X x, Y y",
    "T out",
    "const X::value_type f = a; const Y::value_type g = b;"
    "out = T(x.real() * f + y.real() * g, x.imag() * f + y.imag() * g)",
)
LANE_SCALE = _kernel("lane_scale", "F factor, X x", "T out", "out = T(x.real() * factor, x.imag() * factor)")
LANE_DIVIDE = _kernel(
    "lane_divide", "F divisor, X x", "T out", "out = T(x.real() / divisor, x.imag() / divisor)"
)
LANE_ADD = _kernel(
    "lane_add", "F factor, X x", "Y y", "y = Y(y.real() + x.real() * factor, y.imag() + x.imag() * factor)"
)
LANE_PUT_ADD = _kernel(
    "lane_put_add",
    "int64 columns, int64 width, int64 lane, F factor, X x",
    "raw Y y",
    "Y& sum = y[i / columns * width + lane];"
    "sum = Y(sum.real() + x.real() * factor, sum.imag() + x.imag() * factor)",
)
LANE_CHOOSE = _kernel("lane_choose", "bool chosen, T x", "T y", "if (chosen) y = T(x)")


def difference(x: cupy.ndarray, y: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    elementwise(DIFFERENCE, x, y, out)
    return out


def add(y: cupy.ndarray, x: cupy.ndarray) -> None:
    elementwise(lambda x, y: cupy.add(x, y, y), x, y)


def scale(x: cupy.ndarray, factor: float, out: cupy.ndarray) -> cupy.ndarray:
    elementwise(partial(SCALE, factor), x, out)
    return out


def affine(out: cupy.ndarray, b: float, x: cupy.ndarray, a: float) -> None:
    weighted_sum(b, out, a, x, out)


def weighted_sum(a: float, x: cupy.ndarray, b: float, y: cupy.ndarray, out: cupy.ndarray) -> None:
    elementwise(partial(WEIGHTED_SUM, a, b), x, y, out)


def lane_scale(x: cupy.ndarray, factor: cupy.ndarray, out: cupy.ndarray) -> None:
    elementwise(LANE_SCALE, x, out, small=(factor,))


def lane_divide(x: cupy.ndarray, divisor: cupy.ndarray, out: cupy.ndarray) -> None:
    elementwise(LANE_DIVIDE, x, out, small=(divisor,))


def lane_add(y: cupy.ndarray, x: cupy.ndarray, factor: cupy.ndarray) -> None:
    elementwise(LANE_ADD, x, y, small=(factor,))


def lane_put_add(y: cupy.ndarray, x: cupy.ndarray, lanes: Any, factor: cupy.ndarray | None) -> None:
    factors = cupy.ones(len(lanes), x.real.dtype) if factor is None else factor
    put = partial(LANE_PUT_ADD, len(lanes), y.shape[-1])
    elementwise(put, x, y, small=(cupy.asarray(lanes, np.int64), factors))


def lane_take(x: cupy.ndarray, lanes: Any) -> cupy.ndarray:
    out = empty_field((*x.shape[:-1], len(lanes)), x.dtype)
    elementwise(_take, x, out, small=(cupy.asarray(lanes, np.int64),))
    return out


def _take(lanes: cupy.ndarray, x: cupy.ndarray, out: cupy.ndarray) -> None:
    cupy.take(x, lanes, axis=-1, out=out)


def lane_clear(y: cupy.ndarray, lanes: Any) -> None:
    chosen, zero = np.isin(np.arange(y.shape[-1]), lanes), y.dtype.type(0)
    elementwise(lambda where, own: LANE_CHOOSE(where, zero, own), y, small=(cupy.asarray(chosen),))


def lane_choose(y: cupy.ndarray, x: cupy.ndarray, chosen: Any) -> None:
    elementwise(LANE_CHOOSE, x, y, small=(cupy.asarray(chosen, bool),))
