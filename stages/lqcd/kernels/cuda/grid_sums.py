"""Workspace of the reductions that finish in the launch that begins them (`grid_sum.cuh`)."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.devices.group import on_each_device
from stages.lqcd.kernels.cuda.launch import Launch

Workspace = tuple[Any, ...]


def grid_sums(launch: Launch, values: int) -> Workspace:
    """Room for `values` doubles from each block, and counters that are zero before and after each launch.

    They are kept for the life of the process, so that a captured graph may hold them; reductions of one
    process share them and must run in one stream. Where devices share the launch, each has its own.
    """
    parts, slices = launch.grid
    device = cupy.cuda.get_device_id
    return on_each_device(lambda part: _workspace(parts * slices * values, slices, device(), part))


@cache
def _workspace(doubles: int, counters: int, device: int, part: int) -> Workspace:
    return cupy.empty(doubles), cupy.zeros(counters + counters % 4, np.uint32)
