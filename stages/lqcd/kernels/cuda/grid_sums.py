"""Workspace of the reductions that finish in the launch that begins them (`grid_sum.cuh`)."""

from __future__ import annotations

from functools import cache

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.launch import Launch

Workspace = tuple[cupy.ndarray, cupy.ndarray]


def grid_sums(launch: Launch, values: int) -> Workspace:
    """Room for `values` doubles from each block, and counters that are zero before and after each launch.

    They are kept for the life of the process, so that a captured graph may hold them; reductions of one
    process share them and must run in one stream.
    """
    parts, slices = launch.grid
    return _workspace(parts * slices * values, slices, cupy.cuda.get_device_id())


@cache
def _workspace(doubles: int, counters: int, device: int) -> Workspace:
    return cupy.empty(doubles), cupy.zeros(counters + counters % 4, np.uint32)
