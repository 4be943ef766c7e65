"""Conversions of short fields on the device."""

from __future__ import annotations

from functools import cache
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, Launch, check_rhs, power_of_two
from stages.lqcd.kernels.short_field import ShortField


def to_short(field: cupy.ndarray, bits: int, out: ShortField) -> None:
    kernel = short_conversion_launch("to_short", len(field), field.shape[2], bits)
    run(kernel, field, out.words, np.int64(len(field)))


def from_short(field: ShortField, out: cupy.ndarray) -> None:
    kernel = short_conversion_launch("from_short", len(out), out.shape[2], field.bits)
    run(kernel, field.words, out, np.int64(len(out)))


@cache
def short_conversion_launch(kernel: str, sites: int, n: int, bits: int) -> Launch:
    """A conversion of blocks of n right-hand sides: 'to_short' or 'from_short'."""
    return on_vectors("short_convert.cu", f"{kernel}<Short{bits}, {n}", sites, n)


def on_vectors(file: str, kernel: str, sites: int, n: int) -> Launch:
    """A kernel with a thread for each right-hand side of each site; it lacks its last argument, threads."""
    check_rhs(n)
    groups = power_of_two(BLOCK_THREADS // n)
    work = RowWork(sites, groups)
    return Launch(file, f"{kernel}, {n * groups}>", (ceil(sites / groups),), n * groups, work=work)
