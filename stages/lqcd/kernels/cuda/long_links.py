"""Long links on a GPU, one thread a link."""

from __future__ import annotations

from functools import cache
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import WARPS_THREADS, Launch, on_lattice, warp_work
from stages.lqcd.lattice.geometry import Lattice


def long_links(links: cupy.ndarray, lattice: Lattice, coefficient: float, out: cupy.ndarray) -> None:
    real = np.float32 if out.dtype == np.complex64 else np.float64
    run(long_links_launch(lattice, out.dtype), out, links, real(coefficient))


@cache
def long_links_launch(lattice: Lattice, dtype: np.dtype) -> Launch:
    """Products of three links in a row; grid (sites, mu)."""
    blocks = ceil(lattice.volume / WARPS_THREADS)
    kernel = on_lattice("long_links", lattice, dtype)
    work = warp_work(lattice, parities=2)
    return Launch("long_links.cu", kernel, (blocks, 4), WARPS_THREADS, for_lattice=True, work=work)
