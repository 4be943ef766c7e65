"""Staples: the building block of fat links and of the gauge action."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import gauge
from stages.lqcd.kernels.operands import check_staple
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
    """out(x) += c [ U_nu(x) F(x+nu) U_nu(x+mu)^dag + U_nu(x-nu)^dag F(x-nu) U_nu(x-nu+mu) ] in place.

    out, links_nu and field F (anything that goes from x to x+mu as a link does): ``[parity, site, 3, 3]``.
    `out` must be another array than `field` and `links_nu`. Raises InputError for mu = nu or wrong shapes.
    """
    check_staple(out, field, links_nu, lattice, mu, nu)
    real = np.float32 if out.dtype == np.complex64 else np.float64
    kernel = gauge.add_staple(lattice, out.dtype)
    run(kernel, out, field, links_nu, np.int32(mu), np.int32(nu), real(coefficient))


def weighted_sum(a: float, x: cupy.ndarray, b: float, y: cupy.ndarray) -> cupy.ndarray:
    """a x + b y of two fields of one shape and dtype, in one pass."""
    return _weighted_sum(x, y, a, b)


_weighted_sum = cupy.ElementwiseKernel(
    "T x, T y, float64 a, float64 b", "T out", "out = T(a) * x + T(b) * y", "weighted_sum"
)
