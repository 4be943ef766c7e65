"""Vectors that were stored in few bits, smoothed before they deflate.

Rounding mixes all modes into a vector, most of them high ones. On the even sites they hardly matter; an odd
partner D_oe v, whose norm is the square root of a small eigenvalue, multiplies them by up to |D|. A Chebyshev
polynomial of B, near one where the vectors live and small above, takes them out again.
"""

from __future__ import annotations

from math import ceil

import numpy as np

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.eigen.chebyshev import ChebyshevFilter, RepeatedFilter
from stages.lqcd.kernels import block_blas, lane_blas
from stages.lqcd.kernels.fields import assign, field_like
from stages.lqcd.solvers.deflation import Deflation
from stages.lqcd.solvers.low_pass import upper_bound
from stages.lqcd.solvers.ritz import WIDTH

SUPPRESSION = 2000.0
"""Of modes above the wanted ones, against those near zero."""
REACH = 1.5
"""Times the highest wanted eigenvalue modes are suppressed from."""
MOST_DEGREE = 512
"""Where the wanted ones end that low, modes right above them are suppressed less."""


def polished(deflation: Deflation, B: LinearOperator) -> Deflation:
    """The space of p(B) V, which replaces V in its memory, rounded once, and is measured anew.

    p is a Chebyshev polynomial on the unwanted part of the spectrum, applied in double; B has no negative
    eigenvalue. It takes its degree of applications of B to each vector, and one more.
    """
    V, double = deflation.vectors, B.astype(np.complex128)
    high = upper_bound(double, V)
    low = min(REACH * float(deflation.eigenvalues[-1]), 0.5 * high)
    growth, rate = np.arccosh(SUPPRESSION), np.arccosh(1 + 2 * low / (high - low))
    degree = int(np.clip(ceil(growth / rate), 1, MOST_DEGREE))
    window, repeated = ChebyshevFilter(low, high, degree), RepeatedFilter(double)
    block = spare = field_like(V, V[..., :0].shape, np.complex128)
    for first in range(0, len(deflation), WIDTH):
        some = V[..., first : first + WIDTH]
        if block.shape != some.shape:
            repeated.clear()
            block, spare = (field_like(V, some.shape, np.complex128) for _ in range(2))
        assign(block, some)
        smooth, _ = repeated.apply(window, block, spare)
        lane_blas.lane_divide(smooth, block_blas.norms(smooth), smooth)
        assign(some, smooth)
    return Deflation.measured(B, V)
