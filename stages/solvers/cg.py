"""Conjugate gradients for many right-hand sides at once, each with its own coefficients.

Hestenes and Stiefel, J. Res. NBS 49 (1952) 409. A step reads or writes 11 fields besides applying the
operator: p^H A p (2), the update of y and r with |r|^2 (6), the new direction (3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.dirac.operator import LinearOperator
from stages.kernels.dispatch import Array, Kernels, array_module, to_device_like, to_host
from stages.solvers.krylov import KrylovSolver
from stages.solvers.reliable import BreakdownError, Recurrence, Vector
from stages.solvers.solution import Status


@dataclass(frozen=True)
class BatchedCG(KrylovSolver):
    """Batched CG: the right-hand sides share the operator's links, nothing else.

    A right-hand side that has converged is frozen, and leaves the block as soon as one of the fixed widths
    holds the others (`stages.solvers.reliable.WIDTHS`).
    """

    def recurrence(self, A: LinearOperator, kernels: Kernels) -> Recurrence:
        return _BatchedRecurrence(A, kernels)


class _BatchedRecurrence:
    """r = b - A y and p of each column; all coefficients are float64 ``[width]`` on the host."""

    narrows = True
    update_at = 0.1

    def __init__(self, A: LinearOperator, kernels: Kernels) -> None:
        self.A, self.kernels = A, kernels
        self.p: Array = None
        self.pap: Vector = np.zeros(0)
        self.replaced = False

    @property
    def width(self) -> int:
        return self.r.shape[-1]

    def replace(self, residual: Array, target: Vector, kept: NDArray[np.intp] | None) -> None:
        xp = array_module(residual)
        self.r = residual.astype(self.A.dtype, copy=False)
        self.r2 = to_host(self.kernels.block_blas.norms2(self.r))
        self.target2 = target**2
        if self.p is None:
            self.p, self.ap, self.correction = (xp.zeros_like(self.r) for _ in range(3))
            self.beta = np.zeros_like(target)
            return
        if kept is not None:
            self.p, self.ap = xp.take(self.p, kept, axis=-1), xp.take(self.ap, kept, axis=-1)
            self.correction, self.pap = xp.empty_like(self.r), self.pap[kept]
        self.correction[...] = 0
        self.beta = self._conjugation()
        self.replaced = True

    def step(self) -> Vector:
        """One iteration. After a replacement alpha and beta are computed from what they have to achieve: the
        new residual, unlike the recurrence's own, is orthogonal to the old direction only up to rounding.
        """
        kernels, r2, active = self.kernels, self.r2, self.r2 > self.target2
        kernels.cg_update.cg_direction(self.p, self.r, to_device_like(self.beta, self.r))
        self.A.apply(self.p, self.ap)
        self.pap = self._dots(self.p, self.ap)
        if (self.pap <= 0)[active].any():
            raise BreakdownError(Status.INDEFINITE)
        alpha = _divide(self._dots(self.p, self.r) if self.replaced else r2, self.pap, active)
        coefficients = to_device_like(alpha, self.r)
        self.r2 = to_host(kernels.cg_update.cg_step(self.correction, self.r, self.p, self.ap, coefficients))
        if not np.isfinite(self.r2).all():
            raise BreakdownError(Status.NOT_FINITE)
        self.beta = self._conjugation() if self.replaced else _divide(self.r2, r2, active)
        self.replaced = False
        return np.sqrt(self.r2)

    def _conjugation(self) -> Vector:
        """beta = -(A p)^H r / p^H A p: r + beta p is conjugate to p. Exactly, it is |r|^2 / |r_old|^2."""
        return _divide(-self._dots(self.ap, self.r), self.pap, self.pap > 0)

    def _dots(self, x: Array, y: Array) -> Vector:
        return to_host(self.kernels.block_blas.dots(x, y)).real


def _divide(numerator: Vector, denominator: Vector, where: NDArray[np.bool_]) -> Vector:
    """numerator / denominator, zero outside `where`."""
    return np.divide(numerator, denominator, out=np.zeros_like(denominator), where=where)
