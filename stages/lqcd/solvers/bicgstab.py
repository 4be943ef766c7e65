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

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator, applied_through
from stages.lqcd.kernels import bicgstab_update, lane_blas, stream
from stages.lqcd.kernels.bicgstab_update import BiCGstabCoefficients
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

    workspace: ClassVar[Workspace] = Workspace(host=12, double=11.2, mixed=7.9)
    narrows: ClassVar[bool] = True
    update_at: ClassVar[float] = 0.01

    def check_operator(self, A: LinearOperator) -> None:
        """Any operator will do."""

    def begin(self, A: LinearOperator, residual: Array, target: Vector, directions: Any = None) -> Recurrence:
        return _StabilisedRecurrence(A, residual, target, directions)


class _Directions(NamedTuple):
    """p, v, shadow residual ``[..., width]`` and coefficients ``[*, width]`` of columns that go on."""

    p: Array
    v: Array
    shadow: Array
    numbers: Array
    reals: Array


class _StabilisedRecurrence:
    """p, r, v and t, shadow and y ``[..., width]`` of the inner precision, and coefficients of each column.

    Neighbours in memory enter one sum or one update together.
    """

    full = False
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
        self.coefficients = BiCGstabCoefficients.zeros(residual)
        apply, repeatable = applied_through(A, self.correction)
        step = partial(_step, apply, self.pairs, self.ends, self.correction, self.coefficients)
        self.step = stream.repeated(step, A.xp) if repeatable else step
        if directions is None:
            assign(self.ends[1], residual)
            self._begin(residual, target)
            r2 = self.coefficients.real("r2")
            self.coefficients.number("rho")[0] = self.coefficients.real("shadow2")[:] = r2
            self.coefficients.direct()
        else:
            for field, kept in zip((self.pairs[0], self.pairs[2], self.ends[1]), directions, strict=False):
                assign(field, kept)
            self.coefficients.numbers[...], self.coefficients.reals[...] = directions[3:]
            self.replace(residual, target)

    def replace(self, residual: Array, target: Vector) -> None:
        """The search directions go on, with the beta that belongs to the new residual."""
        self._begin(residual, target)
        c, rho = self.coefficients, lane_blas.lane_dots(self.ends[1:], self.pairs[1])
        c.number("beta")[:] = quotient(rho * c.number("beta"), c.number("rho"), c.number("rho") != 0)
        c.number("rho")[:] = rho
        c.direct()

    def directions(self, columns: NDArray[np.intp]) -> _Directions:
        fields = (self.pairs[0], self.pairs[2], self.ends[1])
        numbers = (self.coefficients.numbers, self.coefficients.reals)
        return _Directions(*(lane_blas.lane_take(each, columns) for each in (*fields, *numbers)))

    def start(self) -> int:
        """Steps 1 to 4."""
        if self.lost.any():
            self._renew()
        self.step()
        self.reports.send(self.coefficients.reals[:2])
        return 2 * self.correction.shape[-1]

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
        r, c = self.pairs[1], self.coefficients
        assign(r, residual)
        assign(self.correction, 0)
        c.real("r2")[:] = lane_blas.lane_dots(r[None], r)[0].real
        c.real("target2")[:] = to_device_like(target**2, r)
        self.host_target2 = target**2
        self.before = as_numpy(c.real("r2"))
        self.stuck = 0
        self.lost = np.zeros(r.shape[-1], bool)
        self.reports = stream.reports(c.reals[:2])

    def _renew(self) -> None:
        """The residual becomes the shadow residual and the direction of the columns that are lost."""
        xp, (r, shadow), c = self.A.xp, (self.pairs[1], self.ends[1]), self.coefficients
        lost = to_device_like(self.lost, r)
        lane_blas.lane_choose(shadow, r, lost)
        rho, shadow2, beta = c.number("rho")[0], c.real("shadow2"), c.number("beta")[0]
        rho[...], shadow2[...] = (xp.where(lost, c.real("r2"), values) for values in (rho, shadow2))
        beta[...] = xp.where(lost, 0, beta)
        c.direct()


def _step(
    apply: Callable[[Array, Array], object],
    pairs: Array,
    ends: Array,
    correction: Array,
    coefficients: BiCGstabCoefficients,
) -> None:
    """Steps 1 to 4, with the direction that the coefficients ask for."""
    (p, r, v), (t, shadow), c = pairs, ends, coefficients
    lane_blas.lane_update(p, pairs[1:], c.number("open", 2), c.number("kept")[0])
    apply(p, v)
    bicgstab_update.bicgstab_alpha(shadow, v, c)
    lane_blas.lane_update(r, pairs[2:], c.number("minus_alpha"))
    apply(r, t)
    bicgstab_update.bicgstab_omega(ends, r, c)
    bicgstab_update.bicgstab_residual(correction, pairs[:2], t, c)
