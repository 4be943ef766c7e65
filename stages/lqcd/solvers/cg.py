"""Conjugate gradients for many right-hand sides at once, each with its own coefficients.

Hestenes and Stiefel, J. Res. NBS 49 (1952) 409, with the steps in the order

    1  y += alpha p,  p = r + beta p      alpha of the step before: one pass over y, p and r
    2  A p, p^H A p                       the product comes with the operator
    3  alpha = |r|^2 / p^H A p,  r -= alpha A p,  beta = |r_new|^2 / |r|^2

as in section 6.2 of arXiv:1710.09745. Steps 1 and 3 read or write 8 fields. All coefficients stay where the
fields are; the host reads |r|^2 and p^H A p, on a device one step late, and does nothing but decide when to
stop. A column that has reached its target changes no bit any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import Field, Step, Storage
from stages.lqcd.kernels import cg_update, lane_blas, stream
from stages.lqcd.kernels.cg_update import CGCoefficients, quotient
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, field_like
from stages.lqcd.kernels.short_numbers import put, take
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.recurrence import BreakdownError, Directions, Recurrence
from stages.lqcd.solvers.solution import SolveStatus, Vector


@dataclass(frozen=True)
class BatchedCG(KrylovSolver):
    """Batched CG: the right-hand sides share the operator's links, nothing else.

    A right-hand side that has converged is frozen, and leaves the block as soon as one of the fixed widths
    holds the others (`stages.lqcd.solvers.recurrence.WIDTHS`).
    """

    narrows: ClassVar[bool] = True
    update_at: ClassVar[float] = 0.1
    half_storages: ClassVar[tuple[type[Storage], ...]] = (Storage,)
    half_is_for: ClassVar[str] = (
        "conjugate gradients is for staggered operators and the normal equations of even-odd Wilson ones"
    )

    def begin(self, storage: Storage, residual: Array, target: Vector, directions: Directions) -> Recurrence:
        return _BatchedRecurrence(storage, residual, target, directions)


class _Directions(NamedTuple):
    """p and A p ``[..., width]``, and p^H A p ``[width]``, of columns that go on."""

    p: Field
    ap: Field
    pap: Array


class _BatchedRecurrence:
    """r, p, A p and y ``[..., width]``, and the coefficients of each column; y is of the operator's dtype."""

    full = False
    r2: Vector
    target2: Vector
    replaced: bool

    def __init__(
        self, storage: Storage, residual: Array, target: Vector, directions: _Directions | None
    ) -> None:
        self.storage, dtype = storage, storage.operator.dtype
        self.lag = stream.lag(storage.operator.xp)
        self.r = storage.stored(residual)
        self.y = field_like(residual, dtype=dtype)
        self.coefficients = CGCoefficients.zeros(self.y)
        if directions is None:
            self.p, self.ap = storage.directions(self.r, self.y)
        else:
            self.p, self.ap, self.coefficients.pap[...] = directions
        self.reports = stream.reports(self.coefficients.numbers[:2])
        self.apply = storage.product(self.p, self.ap, self.coefficients.pap)
        step = partial(_step, self.apply, self.y, self.p, self.r, self.ap, self.coefficients)
        self.step = storage.recorded(step)
        self._begin(target, replaced=directions is not None)

    def replace(self, residual: Array, target: Vector) -> None:
        put(self.r, residual)
        self.reports.discard()
        self._begin(target, replaced=True)

    def directions(self, columns: NDArray[np.intp]) -> _Directions:
        return _Directions(
            take(self.p, columns), take(self.ap, columns), lane_blas.lane_take(self.coefficients.pap, columns)
        )

    @property
    def correction(self) -> Array:
        """Correction y with the share of the last step, which the next one would add.

        Called at the end of a cycle.
        """
        self.coefficients.target2[...] = np.inf  # no direction advances
        cg_update.cg_advance(self.y, self.p, self.r, self.coefficients)
        self.coefficients.alpha[...] = 0
        return self.y

    def start(self) -> int:
        """Steps 1 to 3.

        After a replacement alpha and beta are computed from what they have to achieve: the new residual,
        unlike the recurrence's own, is orthogonal to the old direction only up to rounding.
        """
        if self.replaced:
            c = self.coefficients
            cg_update.cg_advance(self.y, self.p, self.r, c)
            self.apply()
            c.gamma[...] = self.storage.dots(self.p, self.r).real
            cg_update.cg_residual(self.r, self.ap, c)
            c.beta[...] = self._conjugation()
            self.replaced = False
        else:
            self.step()
        self.reports.send(self.coefficients.numbers[:2])
        return self.y.shape[-1]

    def estimate(self) -> Vector:
        report = self.reports.receive()[:, : self.y.shape[-1]]
        before, self.r2 = self.r2, report[0]
        status = self._breakdown(before, report)
        if status is not None:
            raise BreakdownError(status)
        return np.sqrt(self.r2)

    def _breakdown(self, before: Vector, report: NDArray[np.float64]) -> SolveStatus | None:
        """Why the iteration that began with these |r|^2 is the last, if it is; report: |r|^2 and p^H A p."""
        r2, pap = report
        if all(0 < number < inf for number in report.ravel().tolist()):
            return None
        active = before > self.target2
        sound = np.isfinite(r2) & (~active | ((pap > 0) & (pap < np.inf)))
        if np.count_nonzero(sound) == r2.size:
            return None
        indefinite = np.count_nonzero(active & (pap <= 0))
        return SolveStatus.INDEFINITE if indefinite else SolveStatus.NOT_FINITE

    def _begin(self, target: Vector, replaced: bool) -> None:
        """Set y = 0 and the coefficients that belong to r and p."""
        assign(self.y, 0)
        c = self.coefficients
        c.r2[...] = c.gamma[...] = self.storage.norms2(self.r)
        c.target2[...] = to_device_like(target**2, self.y)
        self.r2 = as_numpy(c.r2).copy()
        self.target2 = target**2
        self.replaced = replaced
        if replaced:
            c.beta[...] = self._conjugation()

    def _conjugation(self) -> Array:
        """Coefficients beta = -(A p)^H r / p^H A p: r + beta p is conjugate to p.

        Exactly, it is |r|^2 / |r_old|^2.
        """
        pap = self.coefficients.pap
        return quotient(-self.storage.dots(self.ap, self.r).real, pap, pap > 0)


def _step(apply: Step, y: Array, p: Field, r: Field, ap: Field, coefficients: CGCoefficients) -> None:
    """Steps 1 to 3 on these arrays only."""
    cg_update.cg_advance(y, p, r, coefficients)
    apply()
    cg_update.cg_residual(r, ap, coefficients)
