"""A polynomial of a positive operator that is one at zero and small above: noise of rounding is taken out.

Chebyshev polynomials of the fourth kind, W_k(1 - 2 x / high) / (2 k + 1), have the least maximum of sqrt(x)
|p(x)| on (0, high) with p(0) = 1: it is sqrt(high) / (2 k + 1) (J. Lottes, arXiv:2202.08830). The square
root is what a hop makes of noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator, affine
from stages.lqcd.kernels import block_blas, lane_blas
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.kernels.transfer import sent_like

POWER_STEPS = 20
MARGIN = 1.2
"""Times the estimate after so many power steps is above the largest eigenvalue."""


@dataclass(frozen=True)
class LowPass:
    """p of this degree for eigenvalues from 0 to `high`."""

    high: float
    degree: int

    @cached_property
    def roots(self) -> NDArray[np.float64]:
        """float64 ``[degree]``, descending."""
        angles = 2 * np.pi * np.arange(self.degree, 0, -1) / (2 * self.degree + 1)
        return self.high * (1 - np.cos(angles)) / 2

    def values(self, eigenvalues: NDArray[np.float64]) -> NDArray[np.float64]:
        """p(eigenvalue)."""
        return np.prod(1 - np.asarray(eigenvalues)[..., None] / self.roots, axis=-1)

    def apply(self, B: LinearOperator, x: Array) -> Array:
        """p(B) x, in x or in another array: x is overwritten."""
        spare = field_like(x)
        for root in self.roots:
            affine(B, 1.0, -1 / root, x, spare)
            x, spare = spare, x
        return x


def upper_bound(B: LinearOperator, like: Array) -> float:
    """A bound of the eigenvalues of B, usually 10 to 20 % too high. like: a field of where B works."""
    rng = np.random.default_rng(20261121)
    x = sent_like(rng.normal(size=(*B.shape, 1)).astype(B.dtype), like)
    for _ in range(POWER_STEPS):
        x = B.apply(x)
        norms = block_blas.norms(x)
        lane_blas.lane_divide(x, norms.astype(x.real.dtype), x)
    return MARGIN * float(norms[0])
