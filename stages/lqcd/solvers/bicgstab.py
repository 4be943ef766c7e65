"""BiCGstab for many right-hand sides at once, each with its own coefficients.

H. A. van der Vorst, SIAM J. Sci. Stat. Comput. 13 (1992) 631, with the shadow residual s:

    1  p = r + beta (p - omega v),  v = A p
    2  alpha = rho / s^H v,  r -= alpha v,  t = A r
    3  omega = t^H r / |t|^2,  y += alpha p + omega r,  r -= omega t
    4  rho_new = s^H r = (rho - alpha s^H v) - omega s^H t,  beta = (rho_new / rho) (alpha / omega)

A column whose rho is nothing but rounding, or whose alpha or omega vanishes, takes its residual for the
shadow residual and begins anew from there. Coefficients stay where the fields are; the host reads |r|^2 and
how far rho is from rounding, on a device one step late. A column that has reached its target changes no more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import lane_blas, stream
from stages.lqcd.kernels.cg_update import quotient
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, field_like, zeros_like
from stages.lqcd.kernels.stream import Reports
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.recurrence import BreakdownError, Recurrence, Vector
from stages.lqcd.solvers.solution import SolveStatus
from stages.lqcd.solvers.workspace import Workspace

STUCK_STEPS = 3
"""So many steps in a row that change no residual are the end; the second has a new shadow residual."""


@dataclass(frozen=True)
class BiCGstab(KrylovSolver):
    """BiCGstab: for operators that are not Hermitian, such as those of Wilson quarks.

    Two applications of A in an iteration. Where A has eigenvalues with negative real part it may diverge.
    """

    workspace: ClassVar[Workspace] = Workspace(host=12, double=10.2, mixed=7.4)
    narrows: ClassVar[bool] = True
    update_at: ClassVar[float] = 0.01

    def check_operator(self, A: LinearOperator) -> None:
        """Any operator will do."""

    def begin(self, A: LinearOperator, residual: Array, target: Vector, directions: Any = None) -> Recurrence:
        return _StabilisedRecurrence(A, residual, target, directions)


class _Directions(NamedTuple):
    """p, v, shadow residual ``[..., width]`` and coefficients ``[width]`` of columns that go on."""

    p: Array
    v: Array
    shadow: Array
    alpha: Array
    beta: Array
    omega: Array
    rho: Array
    shadow2: Array


class _StabilisedRecurrence:
    """p, r, v and t, shadow and y ``[..., width]`` of the inner precision; coefficients complex ``[width]``.

    Neighbours in memory enter one sum or one update together.
    """

    full = False
    r2: Array
    target2: Array
    host_target2: Vector
    before: Vector
    stuck: int
    lost: NDArray[np.bool_]
    reports: Reports

    def __init__(
        self,
        A: LinearOperator,
        residual: Array,
        target: Vector,
        directions: _Directions | None,
    ) -> None:
        self.A = A
        self.lag: int = stream.lag(A.xp)
        self.rounding2 = float(np.finfo(A.dtype).eps) ** 2
        self.pairs = zeros_like(residual, (3, *residual.shape), A.dtype)
        self.ends = field_like(residual, (2, *residual.shape), A.dtype)
        self.correction = field_like(residual, dtype=A.dtype)
        if directions is None:
            self.alpha, self.beta, self.omega = zeros_like(residual, (3, residual.shape[-1]), complex)
            assign(self.ends[1], residual)
            self._begin(residual, target)
            self.rho = self.shadow2 = self.r2
        else:
            for field, kept in zip((self.pairs[0], self.pairs[2], self.ends[1]), directions, strict=False):
                assign(field, kept)
            self.alpha, self.beta, self.omega, self.rho, self.shadow2 = directions[3:]
            self.replace(residual, target)

    def replace(self, residual: Array, target: Vector) -> None:
        """The search directions go on, with the beta that belongs to the new residual."""
        self._begin(residual, target)
        rho = lane_blas.lane_dots(self.ends[1:], self.pairs[1])[0]
        self.beta = quotient(rho * self.beta, self.rho, self.rho != 0)
        self.rho = rho

    def directions(self, columns: NDArray[np.intp]) -> _Directions:
        fields = (self.pairs[0], self.pairs[2], self.ends[1])
        coefficients = (self.alpha, self.beta, self.omega, self.rho, self.shadow2)
        return _Directions(*(lane_blas.lane_take(each, columns) for each in (*fields, *coefficients)))

    def start(self) -> int:
        """Steps 1 to 4."""
        xp = self.A.xp
        dots = lane_blas.lane_dots
        if self.lost.any():
            self._renew()
        (p, r, v), t = self.pairs, self.ends[0]
        active = self.r2 > self.target2
        steps = xp.stack([active.astype(complex), -self.omega * self.beta * active])
        lane_blas.lane_update(p, self.pairs[1:], steps, xp.where(active, self.beta, 1))
        self.A.apply(p, v)
        sv = dots(self.ends[1:], v)[0]
        self.alpha = quotient(self.rho, sv, active & (sv != 0))
        lane_blas.lane_update(r, self.pairs[2:], -self.alpha[None])
        self.A.apply(r, t)
        (t2, st), tr = dots(self.ends, t), dots(self.ends[:1], r)[0]
        self.omega = quotient(tr, t2.real, active & (t2.real > 0))
        lane_blas.lane_update(self.correction, self.pairs[:2], xp.stack([self.alpha, self.omega]))
        lane_blas.lane_update(r, self.ends[:1], -self.omega[None])
        self.r2 = dots(r[None], r)[0].real
        rho = (self.rho - self.alpha * sv) - self.omega * st
        self.beta, self.rho = self._conjugation(rho, active), rho
        size = self.shadow2 * self.r2
        self.reports.send(xp.stack([self.r2, quotient(abs(rho) ** 2, size, (self.beta != 0) & (size > 0))]))
        return 2 * r.shape[-1]

    def estimate(self) -> Vector:
        r2, angle2 = self.reports.receive()
        if not np.isfinite(r2).all():
            raise BreakdownError(SolveStatus.NOT_FINITE)
        still_open = r2 > self.host_target2
        self.lost = still_open & ~(angle2 > self.rounding2)
        unchanged = still_open.any() and (r2 == self.before)[still_open].all()
        self.stuck = self.stuck + 1 if unchanged else 0
        if self.stuck == STUCK_STEPS:
            raise BreakdownError(SolveStatus.BREAKDOWN)
        self.before = r2
        return np.sqrt(r2)

    def _begin(self, residual: Array, target: Vector) -> None:
        """r, y = 0, and what the host knows of the columns."""
        r = self.pairs[1]
        assign(r, residual)
        assign(self.correction, 0)
        self.r2 = lane_blas.lane_dots(r[None], r)[0].real
        self.target2 = to_device_like(target**2, r)
        self.host_target2 = target**2
        self.before = as_numpy(self.r2)
        self.stuck = 0
        self.lost = np.zeros(r.shape[-1], bool)
        self.reports = stream.reports(self.A.xp.stack([self.r2, self.r2]))

    def _conjugation(self, rho: Array, where: Array) -> Array:
        """Coefficient beta of a new rho."""
        denominator = self.rho * self.omega
        return quotient(rho * self.alpha, denominator, where & (denominator != 0))

    def _renew(self) -> None:
        """The residual becomes the shadow residual and the direction of the columns that are lost."""
        xp, (r, shadow) = self.A.xp, (self.pairs[1], self.ends[1])
        lost = to_device_like(self.lost, r)
        lane_blas.lane_choose(shadow, r, lost)
        self.rho, self.shadow2 = (xp.where(lost, self.r2, values) for values in (self.rho, self.shadow2))
        self.beta = xp.where(lost, 0, self.beta)
