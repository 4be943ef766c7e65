"""Conversions of fields in few bits on the device, and such fields as kernels take them."""

from __future__ import annotations

from functools import cache
from math import ceil
from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.columns import site_shape
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, Launch, check_rhs, listed
from stages.lqcd.kernels.expressions import largest_parts as largest_parts
from stages.lqcd.kernels.short_numbers import HalfField, ShortField

_NULL = np.uintp(0)


def to_half(field: cupy.ndarray, out: HalfField) -> None:
    kernel = half_conversion_launch(len(field), field.shape[2], to_half=True)
    run(kernel, field, _NULL, out.codes, out.scales, np.int32(len(field)))


def from_half(field: HalfField, out: cupy.ndarray) -> None:
    kernel = half_conversion_launch(len(out), out.shape[2], to_half=False)
    run(kernel, field.codes, field.scales, out, _NULL, np.int32(len(out)))


def to_short(field: cupy.ndarray, bits: int, out: ShortField) -> None:
    kernel = short_conversion_launch("to_short", len(field), field.shape[2], bits)
    run(kernel, field, out.words, np.int64(len(field)))


def from_short(field: ShortField, out: cupy.ndarray) -> None:
    kernel = short_conversion_launch("from_short", len(out), out.shape[2], field.bits)
    run(kernel, field.words, out, np.int64(len(out)))


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


@cache
def short_conversion_launch(kernel: str, sites: int, n: int, bits: int) -> Launch:
    """A conversion of blocks of n right-hand sides: 'to_short' or 'from_short'."""
    shape = site_shape(n)
    return shape.once("short_convert.cu", f"{kernel}<Short{bits}, {n}, {shape.threads}>", sites)
