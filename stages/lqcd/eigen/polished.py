"""Vectors that were stored in few bits, smoothed before they deflate.

Rounding mixes all modes into a vector, most of them high ones. On the even sites they hardly matter; an odd
partner D_oe v, whose norm is the square root of a small eigenvalue, multiplies them by up to |D|. A Chebyshev
polynomial of B, near one where the vectors live and small above, takes them out again.
"""

from __future__ import annotations

import numpy as np

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.eigen.chebyshev import ChebyshevFilter
from stages.lqcd.kernels import block_blas, lane_blas
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import contiguous, field_like
from stages.lqcd.solvers.deflation import WIDTH, Deflation

DEGREE = 24
LOW_END = 0.03
"""Of the spectrum is left as it is, or more if the vectors reach higher: modes above fall by cosh(DEGREE
acosh(...)) = 2000 against those near zero.
"""
POWER_STEPS = 20
MARGIN = 1.2
"""Times the estimate after so many power steps is above the largest eigenvalue."""


def polished(deflation: Deflation, B: LinearOperator, degree: int = DEGREE) -> Deflation:
    """The space of p(B) V, which replaces V in its memory, in the precision of V, and is measured anew.

    p is the Chebyshev polynomial of this degree on the unwanted part of the spectrum; B has no negative
    eigenvalue. It takes degree + 1 applications of B to each vector.
    """
    V = deflation.vectors
    same = B.astype(V.dtype)
    high = MARGIN * _largest(same, V)
    low = min(max(LOW_END * high, 1.5 * float(deflation.eigenvalues[-1])), 0.5 * high)
    window = ChebyshevFilter(low, high, degree)
    for first in range(0, len(deflation), WIDTH):
        columns = slice(first, first + WIDTH)
        block = contiguous(V[..., columns])
        smooth, _ = window.apply(same, block, field_like(block))
        lane_blas.lane_divide(smooth, block_blas.norms(smooth), smooth)
        V[..., columns] = smooth
    return Deflation.measured(B, V)


def _largest(B: LinearOperator, V: Array) -> float:
    """|B x| of a random unit vector after some power steps: a lower bound, usually by a few per cent."""
    rng = np.random.default_rng(20261121)
    x = to_device_like(rng.normal(size=(*V.shape[:-1], 1)).astype(V.dtype), V)
    for _ in range(POWER_STEPS):
        x = B.apply(x)
        norms = block_blas.norms(x)
        lane_blas.lane_divide(x, norms.astype(x.real.dtype), x)
    return float(norms[0])
