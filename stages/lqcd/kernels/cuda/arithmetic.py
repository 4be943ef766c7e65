"""Sums and multiples of fields, and of their columns, with the rounding of the array expressions.

Operands that are no rows, or of other kinds of numbers than real and complex ones, are CuPy's.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.fields import empty_field
from stages.lqcd.kernels.cuda.pointwise import TYPES, UNITS, computed, start


def difference(x: cupy.ndarray, y: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    if not (x.dtype == y.dtype == out.dtype and computed("difference", (out,), (out, x, y))):
        cupy.subtract(x, y, out=out)
    return out


def add(y: cupy.ndarray, x: cupy.ndarray) -> None:
    if not computed("add", (y, x), (y, x)):
        y += x


def scale(x: cupy.ndarray, factor: float, out: cupy.ndarray) -> cupy.ndarray:
    if not (x.dtype == out.dtype and computed("scale", (x,), (out, x), np.float64(factor))):
        cupy.multiply(x, factor, out=out)
    return out


def affine(out: cupy.ndarray, b: float, x: cupy.ndarray, a: float) -> None:
    weighted_sum(b, out, a, x, out)


def weighted_sum(a: float, x: cupy.ndarray, b: float, y: cupy.ndarray, out: cupy.ndarray) -> None:
    factors = np.float64(a), np.float64(b)
    if not (x.dtype == y.dtype == out.dtype and computed("weighted_sum", (x,), (out, x, y), *factors)):
        cupy.add(a * x, b * y, out=out)


def lane_scale(x: cupy.ndarray, factor: cupy.ndarray, out: cupy.ndarray) -> None:
    if not _by_lanes("scale_lanes", _kinds(x, factor, then=("false",)), (out, x), factor):
        cupy.multiply(x, factor, out=out)


def lane_divide(x: cupy.ndarray, divisor: cupy.ndarray, out: cupy.ndarray) -> None:
    if not _by_lanes("scale_lanes", _kinds(x, divisor, then=("true",)), (out, x), divisor):
        cupy.divide(x, divisor, out=out, casting="same_kind")


def lane_add(y: cupy.ndarray, x: cupy.ndarray, factor: cupy.ndarray) -> None:
    if not _by_lanes("add_lanes", _kinds(y, x, factor), (y, x), factor, None):
        y += x * factor


def lane_put_add(y: cupy.ndarray, x: cupy.ndarray, lanes: Any, factor: cupy.ndarray | None) -> None:
    kinds = _kinds(y, x, x.real if factor is None else factor)
    if not _by_lanes("add_lanes", kinds, (y, x), factor, cupy.asarray(lanes, np.int32)):
        y[..., lanes] += x if factor is None else x * factor


def lane_take(x: cupy.ndarray, lanes: Any) -> cupy.ndarray:
    out = empty_field((*x.shape[:-1], len(lanes)), x.dtype)
    if not _by_lanes("take_lanes", (UNITS[x.itemsize],), (x, out), cupy.asarray(lanes, np.int32)):
        out[...] = cupy.take(x, cupy.asarray(lanes), axis=-1)
    return out


def lane_clear(y: cupy.ndarray, lanes: Any) -> None:
    numbers = cupy.asarray(lanes, np.int32)
    if not _by_lanes("clear_lanes", (UNITS[y.itemsize],), (y,), numbers, columns=len(lanes)):
        y[..., lanes] = 0


def lane_choose(y: cupy.ndarray, x: cupy.ndarray, chosen: Any) -> None:
    where = cupy.asarray(chosen, bool)
    if not _by_lanes("choose_lanes", (UNITS[y.itemsize],), (y, x), where):
        y[...] = cupy.where(where, x, y)


def _kinds(*arrays: cupy.ndarray, then: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Template arguments for arrays of numbers, the last one real; none for others."""
    kinds = [TYPES.get(array.dtype.char, "") for array in arrays]
    return () if "" in kinds or arrays[-1].dtype.kind != "f" else (*kinds, *then)


def _by_lanes(
    kernel: str,
    types: tuple[str, ...],
    fields: tuple[cupy.ndarray, ...],
    *numbers: cupy.ndarray | None,
    columns: int | None = None,
) -> bool:
    """Queue a kernel with numbers for each column; False without types, or columns that lie side by side.

    columns: a number of them, by default that of the last field.
    """
    kind, narrowest = fields[0].dtype.kind, fields[-1].shape[-1] if columns is None else columns
    if not types or any(each.strides[-1] != each.itemsize or each.dtype.kind != kind for each in fields):
        return False
    given = [None if each is None else cupy.ascontiguousarray(each) for each in numbers]
    pointers = [np.uintp(0 if each is None else each.data.ptr) for each in given]
    return start(kernel, types, fields, *pointers, columns=narrowest)
