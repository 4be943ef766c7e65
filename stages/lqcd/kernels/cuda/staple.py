"""Staples on a GPU, one thread a link; sums of fields in one pass."""

from __future__ import annotations

from functools import cache

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.arithmetic import scale
from stages.lqcd.kernels.cuda.arithmetic import weighted_sum as weighted_sum
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import TILES, Launch, by_warps, on_lattice, warp_work
from stages.lqcd.lattice.geometry import Lattice


def add_staple(
    out: cupy.ndarray,
    field: cupy.ndarray,
    links_nu: cupy.ndarray,
    lattice: Lattice,
    mu: int,
    nu: int,
    coefficient: float,
) -> None:
    real = np.float32 if out.dtype == np.complex64 else np.float64
    kernel = add_staple_launch(lattice, out.dtype)
    run(kernel, out, field, links_nu, np.int32(mu), np.int32(nu), real(coefficient))


def scaled(factor: float, x: cupy.ndarray, out: cupy.ndarray) -> None:
    scale(x, factor, out)


@cache
def add_staple_launch(lattice: Lattice, dtype: np.dtype) -> Launch:
    """Both staples around every link of a direction."""
    name, work = on_lattice("add_staple", lattice, dtype), warp_work(lattice, parities=2)
    return by_warps("staple.cu", name, lattice.volume, TILES, dtype, work)
