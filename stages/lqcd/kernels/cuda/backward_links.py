"""Coarse links against the directions: every matrix is read once, and turned in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.grid_rows import site_work
from stages.lqcd.kernels.cuda.devices.partition import Work
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, Launch, instance


def add_backward(
    diagonal: cupy.ndarray, inside: Sequence[cupy.ndarray], links: cupy.ndarray, behind: cupy.ndarray
) -> None:
    sites, n = diagonal.shape[0], diagonal.shape[-1]
    run(backward_links_launch(n, links.dtype, sites, site_work(links)), diagonal, *inside, links, behind)


@cache
def backward_links_launch(n: int, dtype: np.dtype, sites: int, work: Work | None = None) -> Launch:
    """Grid (sites)."""
    return Launch(
        "backward_links.cu", instance("backward_links", dtype, n), (sites,), BLOCK_THREADS, work=work
    )
