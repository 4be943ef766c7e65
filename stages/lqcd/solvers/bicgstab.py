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

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import Halved, LinearOperator
from stages.lqcd.kernels import lane_blas, stream
from stages.lqcd.kernels.bicgstab_update import BiCGstabCoefficients
from stages.lqcd.kernels.cg_update import quotient
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.stream import Reports
from stages.lqcd.solvers.bicgstab_fields import HalfFields, WholeFields
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.recurrence import BreakdownError, Recurrence
from stages.lqcd.solvers.solution import SolveStatus, Vector

STUCK_STEPS = 3
"""So many steps in a row that change no residual are the end; the second has a new shadow residual."""


@dataclass(frozen=True)
class BiCGstab(KrylovSolver):
    """BiCGstab: for operators that are not Hermitian, such as those of Wilson quarks.

    Two applications of A in an iteration. Where A has eigenvalues with negative real part it may diverge.
    """

    narrows: ClassVar[bool] = True
    update_at: ClassVar[float] = 0.01

    halves: ClassVar[bool] = True

    @property
    def fall(self) -> float:
        """Fall of a residual that asks for its next replacement: `delta`, or the precision's own.

        Near the critical mass a solve in half takes 633 iterations with 0.1, and 890 with 0.01 (8^3 x 16).
        """
        return self.delta or (0.1 if self.inner == "half" else self.update_at)

    def check_operator(self, A: LinearOperator) -> None:
        """Any operator will do."""

    def in_half(self, A: LinearOperator) -> LinearOperator:
        """A for fields in 16 bits. Raises InputError."""
        if isinstance(A, Halved):
            return A.halved()
        raise InputError(
            "half precision of BiCGstab is for even-odd Wilson operators, not for "
            f"{type(A).__name__}: iterate in 'single'"
        )

    def begin(self, A: LinearOperator, residual: Array, target: Vector, directions: Any = None) -> Recurrence:
        fields = (HalfFields if self.inner == "half" else WholeFields)(A, residual)
        return _StabilisedRecurrence(A, fields, residual, target, directions)


class _Directions(NamedTuple):
    """p, v, shadow residual and coefficients ``[*, width]`` of columns that go on."""

    fields: tuple[Any, ...]
    numbers: Array
    reals: Array


class _StabilisedRecurrence:
    """Fields ``[..., width]`` and coefficients of each column."""

    full = False
    host_target2: Vector
    before: Vector
    stuck: int
    lost: NDArray[np.bool_]
    reports: Reports

    def __init__(
        self,
        A: LinearOperator,
        fields: WholeFields | HalfFields,
        residual: Array,
        target: Vector,
        directions: _Directions | None,
    ) -> None:
        self.A, self.fields = A, fields
        self.lag: int = stream.lag(A.xp)
        self.rounding2 = float(np.finfo(A.dtype).eps) ** 2
        self.coefficients = BiCGstabCoefficients.zeros(residual)
        self.step = fields.step(self.coefficients)
        if directions is None:
            self._begin(residual, target)
            fields.aim()
            r2 = self.coefficients.real("r2")
            self.coefficients.number("rho")[0] = self.coefficients.real("shadow2")[:] = r2
            self.coefficients.direct()
        else:
            fields.put(directions.fields)
            self.coefficients.numbers[...], self.coefficients.reals[...] = directions[1:]
            self.replace(residual, target)

    @property
    def correction(self) -> Array:
        return self.fields.correction

    def replace(self, residual: Array, target: Vector) -> None:
        """The search directions go on, with the beta that belongs to the new residual."""
        self._begin(residual, target)
        c, rho = self.coefficients, self.fields.rho()
        c.number("beta")[:] = quotient(rho * c.number("beta"), c.number("rho"), c.number("rho") != 0)
        c.number("rho")[:] = rho
        c.direct()

    def directions(self, columns: NDArray[np.intp]) -> _Directions:
        numbers = (self.coefficients.numbers, self.coefficients.reals)
        taken = (lane_blas.lane_take(each, columns) for each in numbers)
        return _Directions(self.fields.take(columns), *taken)

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
        c = self.coefficients
        c.real("r2")[:] = self.fields.begin(residual)
        c.real("target2")[:] = to_device_like(target**2, c.reals)
        self.host_target2 = target**2
        self.before = as_numpy(c.real("r2"))
        self.stuck = 0
        self.lost = np.zeros(target.size, bool)
        self.reports = stream.reports(c.reals[:2])

    def _renew(self) -> None:
        """The residual becomes the shadow residual and the direction of the columns that are lost."""
        xp, c = self.A.xp, self.coefficients
        lost = to_device_like(self.lost, c.reals)
        self.fields.aim_at(lost)
        rho, shadow2, beta = c.number("rho")[0], c.real("shadow2"), c.number("beta")[0]
        rho[...], shadow2[...] = (xp.where(lost, c.real("r2"), values) for values in (rho, shadow2))
        beta[...] = xp.where(lost, 0, beta)
        c.direct()
