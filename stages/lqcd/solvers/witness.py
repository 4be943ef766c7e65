"""Solves seen from outside: random combinations of right-hand sides and solutions, for a check by other code.

With signs w_j = +-1 of the columns j, sum_j w_j b_j - A sum_j w_j x_j is at most sum_j |b_j - A x_j|. So one
application of another A, made of other links by other kernels, checks the solutions of any number of
right-hand sides at once (R. Freivalds, IFIP Congress 1977): a wrong column cannot hide behind the others, but
for two that are wrong in the same way, half of the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import WrongResultError
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import block_blas
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import contiguous, zeros_like
from stages.lqcd.kernels.transfer import copy_to_host

LINKS = 1e-12
"""What rounding on another way to the same links may change in A x, relative to |x|."""


@dataclass
class Combination:
    """Sums over columns, with signs: fields ``[*, 1]`` in the memory of the solve; allowed: of |b - A x|."""

    b: Array
    x: Array
    allowed: float = 0.0

    @classmethod
    def like(cls, field: Array) -> Combination:
        """No columns yet, of fields ``[*, N]``."""
        shape = (*field.shape[:-1], 1)
        return cls(zeros_like(field, shape), zeros_like(field, shape))

    def add(self, b: Array, x: Array, residual: NDArray[np.float64], signs: NDArray) -> None:
        """Add the columns of a block; residual: |b - A x| / |b| as the solver has measured it."""
        weights = to_device_like(signs.astype(complex)[:, None], b)
        block_blas.update(_rows(self.b), _rows(b), weights)
        block_blas.update(_rows(self.x), _rows(x), weights)
        self.allowed += float(np.sum(residual * as_numpy(block_blas.norms(_rows(b)))))

    def check(self, A: LinearOperator, what: str) -> None:
        """Raise WrongResultError unless A x = b for another A, on the host, as well as the solver says."""
        b, x = copy_to_host(self.b), copy_to_host(self.x)
        missed = A.apply(x)
        block_blas.difference(b, missed, missed)
        distance, size = norm(missed), norm(x)
        limit = 1.01 * self.allowed + LINKS * size
        if not distance <= limit:
            raise WrongResultError(
                f"{what} do not hold by other kernels: |b - A x| of their sum is {distance:.3g}, "
                f"their residuals allow {limit:.3g}"
            )


def norm(field: Array) -> float:
    """|x| of a field ``[*, 1]``."""
    return float(as_numpy(block_blas.norms(_rows(field)))[0])


def signs(rng: np.random.Generator, columns: int) -> NDArray:
    """A sign for each column."""
    return rng.choice([-1.0, 1.0], columns)


def _rows(field: Array) -> Array:
    return contiguous(field).reshape(-1, field.shape[-1])
