"""Conversions on the device, and fields as kernels take them."""

from __future__ import annotations

from functools import cache
from math import ceil
from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.fields import empty_field
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, Launch, check_rhs, listed
from stages.lqcd.kernels.expressions import largest_parts as largest_parts
from stages.lqcd.kernels.half_field import HalfField, empty

_NULL = np.uintp(0)


def to_half(field: cupy.ndarray, out: HalfField | None = None) -> HalfField:
    out = empty(cupy, len(field), field.shape[2]) if out is None else out
    kernel = half_conversion_launch(len(field), field.shape[2], to_half=True)
    run(kernel, field, _NULL, out.codes, out.scales, np.int32(len(field)))
    return out


def from_half(field: HalfField, out: cupy.ndarray | None = None) -> cupy.ndarray:
    out = empty_field(field.shape, np.complex64) if out is None else out
    kernel = half_conversion_launch(len(out), out.shape[2], to_half=False)
    run(kernel, field.codes, field.scales, out, _NULL, np.int32(len(out)))
    return out


def codes_and_scales(field: cupy.ndarray | HalfField | None) -> tuple[Any, Any]:
    """The two arguments that stand for a field, whole or in 16 bits, or for none."""
    if isinstance(field, HalfField):
        return field.codes, field.scales
    return (_NULL if field is None else field), _NULL


@cache
def half_conversion_launch(sites: int, n: int, to_half: bool) -> Launch:
    """complex64 ``[sites, 12, n]`` to 16 bits with a scale, or back."""
    check_rhs(n)
    rhs = 2 if n % 2 == 0 else 1
    kinds = ["WholeSpinors", "HalfSpinors"]
    arguments = listed((*(kinds if to_half else kinds[::-1]), n, rhs))
    threads = sites * (n // rhs)
    blocks, work = ceil(threads / BLOCK_THREADS), RowWork(threads, BLOCK_THREADS)
    return Launch("half_convert.cu", f"convert<{arguments}>", (blocks,), BLOCK_THREADS, work=work)
