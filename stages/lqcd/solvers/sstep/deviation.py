"""A bound of how far the residual of an s-step recurrence has come from the true one, to replace it in time.

E. Carson and J. Demmel, SIAM J. Matrix Anal. Appl. 35 (2014) 22, eqs. (4.7) to (4.9): every step adds

    eps [ (4 + N') ( |A| || |Y| |x'| || + || |Y| |B| |x'| || + || |Y| |r'| || ) ]

to a bound d of |b - A x - r|, from the sums of magnitudes |Y|^T |Y|. The residual is replaced where d
outgrows sqrt(eps) |r|, unless it has hardly grown since it was replaced last.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

NONZEROS = 7
"""N', numbers of x that make one of A x: of order one in the bound, and not known of an operator."""
GROWN = 1.1


class Deviation:
    """The bound d of each right-hand side ``[N]``, in units of their residuals when it began.

    eps: rounding of the fields. norm: |A|. x, r: norms ``[N]`` of both when it began.
    """

    def __init__(self, eps: float, norm: float, x: Numbers, r: Numbers) -> None:
        self.eps, self.norm = eps, norm
        self.bound = eps * ((1 + 2 * NONZEROS) * norm * x + r)
        self.began = self.bound.copy()
        self.grown = self.bound[np.newaxis]

    def block(
        self, magnitudes: Numbers, change: Numbers, x: Numbers, r: Numbers, norms: Numbers
    ) -> NDArray[np.bool_]:
        """True where the residual should be replaced after a step of a block, bool ``[steps + 1, N]``.

        magnitudes: |Y|^T |Y| ``[N, K, K]``. x, r: coordinates ``[steps + 1, N, K]``. norms: |r|
        ``[steps + 1, N]``.
        """
        sizes = self._size(magnitudes, x) * self.norm
        sizes += self._size(magnitudes, np.abs(x) @ np.abs(change).T)
        sizes += self._size(magnitudes, r)
        growth = self.eps * (4 + NONZEROS) * sizes
        growth[0] = 0
        self.grown = self.bound + np.cumsum(growth, axis=0)
        return (self.grown > np.sqrt(self.eps) * norms) & (self.grown > GROWN * self.began)

    def advance(self, steps: int) -> None:
        """A block ends after so many of its steps."""
        self.bound = self.grown[steps]

    @staticmethod
    def _size(magnitudes: Numbers, coordinates: Numbers) -> Numbers:
        """|| |Y| |c| || of coordinates ``[steps + 1, N, K]``."""
        c = np.abs(coordinates)
        return np.sqrt(np.maximum(np.einsum("snj,njk,snk->sn", c, magnitudes, c), 0))
