"""Long links on a GPU, one thread a link."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import gauge
from stages.lqcd.lattice.geometry import Lattice


def long_links(links: cupy.ndarray, lattice: Lattice, coefficient: float, out: cupy.ndarray) -> None:
    real = np.float32 if out.dtype == np.complex64 else np.float64
    run(gauge.long_links(lattice, out.dtype), out, links, real(coefficient))
