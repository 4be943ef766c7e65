"""Shapes of the kernels on gauge links."""

from __future__ import annotations

from functools import cache
from math import ceil

import numpy as np

from stages.kernels.cuda.launch.base import Launch, listed, real_of
from stages.lattice.geometry import Lattice


@cache
def add_staple(lattice: Lattice, dtype: np.dtype) -> Launch:
    """Both staples around every link of a direction, a thread per site."""
    instance = f"add_staple<{real_of(dtype)}, {listed(lattice.extents)}>"
    return Launch("staple.cu", instance, (ceil(lattice.volume / 128),), 128)
