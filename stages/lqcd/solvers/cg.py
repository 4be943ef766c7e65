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

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator, Shortened, ShortOperator, application
from stages.lqcd.kernels import block_blas, cg_update, lane_blas, stream
from stages.lqcd.kernels.cg_update import CGCoefficients, quotient
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, converted, field_like, zeros_like
from stages.lqcd.kernels.short_field import Field, ShortField, put, to_short, vectors_like
from stages.lqcd.kernels.stream import Bursts, Reports
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.recurrence import BreakdownError, Recurrence, Vector
from stages.lqcd.solvers.solution import SolveStatus

BURST, NUMBERS = 32, 1 << 23
"""Iterations at once on the host at most, and numbers of a field in all: half a second on two cores."""


@dataclass(frozen=True)
class BatchedCG(KrylovSolver):
    """Batched CG: the right-hand sides share the operator's links, nothing else.

    A right-hand side that has converged is frozen, and leaves the block as soon as one of the fixed widths
    holds the others (`stages.lqcd.solvers.recurrence.WIDTHS`).
    """

    narrows: ClassVar[bool] = True
    update_at: ClassVar[float] = 0.1
    halves: ClassVar[bool] = True

    def in_half(self, A: LinearOperator) -> LinearOperator:
        """A for short fields. Raises InputError."""
        if isinstance(A, Shortened):
            return A.shortened()
        raise InputError(
            f"half precision is for staggered operators, not for {type(A).__name__}: iterate in 'single'"
        )

    def begin(self, A: LinearOperator, residual: Array, target: Vector, directions: Any = None) -> Recurrence:
        return _BatchedRecurrence(A, residual, target, directions, short=self.inner == "half")


class _Directions(NamedTuple):
    """p and A p ``[..., width]``, and p^H A p ``[width]``, of columns that go on."""

    p: Array | ShortField
    ap: Array | ShortField
    pap: Array


class _BatchedRecurrence:
    """r, p, A p and y ``[..., width]`` of the inner precision, and the coefficients of each column.

    short: r and A p are short fields (`stages.lqcd.kernels.short_field`), y is complex64; so is p, unless the
    operator wants it in 16 bits. The residual r has 20, and A p, which moves it: what rounding changes there,
    the recurrence cannot know. On 8^3 x 16, m = 0.005, 20 bits cost 3 % of the iterations of single
    precision, 16 bits 5 %, at m = 0.02 none and 7 %.
    """

    full = False
    r2: Vector
    target2: Vector
    replaced: bool
    broken: SolveStatus | None = None

    def __init__(
        self,
        A: LinearOperator,
        residual: Array,
        target: Vector,
        directions: _Directions | None,
        short: bool,
    ) -> None:
        self.lag = stream.lag(A.xp)
        r = converted(residual, A.dtype)
        self.y = field_like(r)
        self.r = _residual(r, short)
        self.coefficients = CGCoefficients.zeros(self.y)
        self.p: Any
        self.ap: Any
        if directions is None:
            short_directions = isinstance(A, ShortOperator) and A.short_directions
            self.p = vectors_like(self.r if short_directions else self.y)
            self.ap = vectors_like(self.r, bits=20)
            put(self.p, zeros_like(r))
        else:
            self.p, self.ap, self.coefficients.pap[...] = directions
        self.reports: Reports = stream.reports(self.coefficients.numbers[:2])
        self.apply, repeatable = application(A, self.p, self.ap, self.coefficients.pap)
        fields = (self.y, self.p, self.r, self.ap)
        step = partial(_step, self.apply, *fields, self.coefficients)
        repeated = stream.repeated if short else stream.recorded  # no compiled calls on the host
        self.step = repeated(step, A.xp) if repeatable else step
        self.longest = max(1, min(BURST, NUMBERS // self.y.size))
        self._begin(target, replaced=directions is not None)

    def replace(self, residual: Array, target: Vector) -> None:
        put(self.r, residual)
        self.reports.discard()
        self._begin(target, replaced=True)

    def directions(self, columns: NDArray[np.intp]) -> _Directions:
        fields = self.p, self.ap, self.coefficients.pap
        return _Directions(*(lane_blas.lane_take(each, columns) for each in fields))

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
            update, c = cg_update, self.coefficients
            update.cg_advance(self.y, self.p, self.r, c)
            self.apply()
            c.gamma[...] = block_blas.dots(self.p, self.r).real
            update.cg_residual(self.r, self.ap, c)
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

    @property
    def unattended(self) -> bool:
        return not self.lag and isinstance(self.step, Bursts)

    def run(self, most: int, delta: float) -> NDArray[np.float64]:
        if self.broken is not None:
            raise BreakdownError(self.broken)
        if self.replaced or not isinstance(self.step, Bursts):
            self.start()
            return self.estimate()[np.newaxis]
        reports = np.empty((min(most, self.longest), 2, self.y.shape[-1]))
        reports = reports[: self.step.burst(self.coefficients, self.ceiling2, delta, reports)]
        before, self.r2 = [self.r2, *reports[:, 0]][-2:]
        self.broken = self._breakdown(before, reports[-1])
        if self.broken is None:
            return np.sqrt(reports[:, 0])
        if len(reports) == 1:
            raise BreakdownError(self.broken)
        return np.sqrt(reports[:-1, 0])

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
        c.r2[...] = c.gamma[...] = block_blas.norms2(self.r)
        c.target2[...] = to_device_like(target**2, self.y)
        self.r2 = as_numpy(c.r2).copy()
        self.ceiling2, self.target2 = self.r2.copy(), target**2
        self.replaced = replaced
        if replaced:
            c.beta[...] = self._conjugation()

    def _conjugation(self) -> Array:
        """Coefficients beta = -(A p)^H r / p^H A p: r + beta p is conjugate to p.

        Exactly, it is |r|^2 / |r_old|^2.
        """
        pap = self.coefficients.pap
        return quotient(-block_blas.dots(self.ap, self.r).real, pap, pap > 0)


def _residual(r: Array, short: bool) -> Any:
    """The residual as the recurrence keeps it."""
    return to_short(r, 20) if short else r


def _step(
    apply: Callable[[], None],
    y: Array,
    p: Field,
    r: Field,
    ap: Field,
    coefficients: CGCoefficients,
) -> None:
    """Steps 1 to 3 on these arrays alone."""
    cg_update.cg_advance(y, p, r, coefficients)
    apply()
    cg_update.cg_residual(r, ap, coefficients)
