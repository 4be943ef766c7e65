"""Shape of the covariant shift within time slices."""

from __future__ import annotations

from functools import cache
from math import ceil

import numpy as np

from stages.lqcd.kernels.cuda.launch.base import BLOCK_THREADS, Launch, extents_of, instance, power_of_two
from stages.lqcd.lattice.geometry import Lattice

WARP = 32


@cache
def slice_shift(lattice: Lattice, dtype: np.dtype, mu: int, step: int, rows: int, columns: int) -> Launch:
    """Launch on so many sites, with up to a warp of threads for the columns of a site."""
    lanes = power_of_two(min(columns, WARP))
    kernel = instance("slice_shift", dtype, extents_of(lattice), mu, step, lanes)
    return Launch("slice_shift.cu", kernel, (ceil(rows / (BLOCK_THREADS // lanes)),), BLOCK_THREADS)
