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
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import Field, HalfStorage, LinearOperator, Step, Storage
from stages.lqcd.kernels import bicgstab_update, lane_blas, stream
from stages.lqcd.kernels.bicgstab_update import BiCGstabCoefficients
from stages.lqcd.kernels.cg_update import quotient
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import assign, field_like, zeros_like
from stages.lqcd.kernels.half_update import half_alpha, half_dot, half_omega, half_residual, half_update
from stages.lqcd.kernels.short_numbers import HalfField, put, take
from stages.lqcd.kernels.stream import Reports
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.recurrence import BreakdownError, Directions, Recurrence
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
    half_storages: ClassVar[tuple[type[Storage], ...]] = (HalfStorage,)
    half_is_for: ClassVar[str] = "BiCGstab is for even-odd Wilson operators"

    @property
    def fall(self) -> float:
        """Fall of a residual that asks for its next replacement: `delta`, or the precision's own.

        Near the critical mass a solve in half takes 633 iterations with 0.1, and 890 with 0.01 (8^3 x 16).
        """
        return self.delta or (0.1 if self.half else self.update_at)

    def check_operator(self, A: LinearOperator) -> None:
        """Any operator will do."""

    def begin(self, storage: Storage, residual: Array, target: Vector, directions: Directions) -> Recurrence:
        kind = _HalfRecurrence if isinstance(storage, HalfStorage) else _StabilisedRecurrence
        return kind(storage, residual, target, directions)


class _Directions(NamedTuple):
    """p, v, shadow residual and coefficients ``[*, width]`` of columns that go on."""

    fields: tuple[Field, ...]
    numbers: Array
    reals: Array


class _StabilisedRecurrence:
    """p, r, v, t, shadow residual s and y ``[..., width]``, and coefficients of each column.

    All are of the operator's dtype; p, r, v and t, s are neighbours in memory, which enter one sum or update.
    """

    full = False
    host_target2: Vector
    before: Vector
    stuck: int
    lost: NDArray[np.bool_]
    reports: Reports
    p: Field
    r: Field
    v: Field
    t: Field
    s: Field

    def __init__(
        self, storage: Storage, residual: Array, target: Vector, directions: _Directions | None
    ) -> None:
        self.storage, A = storage, storage.operator
        self.lag: int = stream.lag(A.xp)
        self.rounding2 = float(np.finfo(A.dtype).eps) ** 2
        self._make_fields(residual)
        self.correction = field_like(residual, dtype=A.dtype)
        self.coefficients = BiCGstabCoefficients.zeros(residual)
        self.step = storage.repeated(self._new_step())
        if directions is None:
            self._begin(residual, target)
            _copy(self.s, self.r)
            r2 = self.coefficients.real("r2")
            self.coefficients.number("rho")[0] = self.coefficients.real("shadow2")[:] = r2
            self.coefficients.direct()
        else:
            for field, kept in zip((self.p, self.v, self.s), directions.fields, strict=True):
                _copy(field, kept)
            self.coefficients.numbers[...], self.coefficients.reals[...] = directions[1:]
            self.replace(residual, target)

    def replace(self, residual: Array, target: Vector) -> None:
        """The search directions go on, with the beta that belongs to the new residual."""
        self._begin(residual, target)
        c, rho = self.coefficients, self._dot(self.s, self.r)
        c.number("beta")[:] = quotient(rho * c.number("beta"), c.number("rho"), c.number("rho") != 0)
        c.number("rho")[:] = rho
        c.direct()

    def directions(self, columns: NDArray[np.intp]) -> _Directions:
        fields = tuple(take(field, columns) for field in (self.p, self.v, self.s))
        numbers = (self.coefficients.numbers, self.coefficients.reals)
        return _Directions(fields, *(lane_blas.lane_take(each, columns) for each in numbers))

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
        put(self.r, residual)
        assign(self.correction, 0)
        c.real("r2")[:] = self._dot(self.r, self.r).real
        c.real("target2")[:] = to_device_like(target**2, c.reals)
        self.host_target2 = target**2
        self.before = as_numpy(c.real("r2"))
        self.stuck = 0
        self.lost = np.zeros(target.size, bool)
        self.reports = stream.reports(c.reals[:2])

    def _renew(self) -> None:
        """The residual becomes the shadow residual and the direction of the columns that are lost."""
        xp, c = self.storage.operator.xp, self.coefficients
        lost = to_device_like(self.lost, c.reals)
        self._choose_shadow(lost)
        rho, shadow2, beta = c.number("rho")[0], c.real("shadow2"), c.number("beta")[0]
        rho[...], shadow2[...] = (xp.where(lost, c.real("r2"), values) for values in (rho, shadow2))
        beta[...] = xp.where(lost, 0, beta)
        c.direct()

    def _make_fields(self, like: Array) -> None:
        self.pairs = zeros_like(like, (3, *like.shape), self.storage.operator.dtype)
        self.ends = field_like(like, (2, *like.shape), self.storage.operator.dtype)
        (self.p, self.r, self.v), (self.t, self.s) = self.pairs, self.ends

    def _dot(self, x: Field, y: Field) -> Array:
        """conj(x) . y ``[width]``."""
        return lane_blas.lane_dots(x[None], y)[0]

    def _choose_shadow(self, columns: Array) -> None:
        """The residual becomes the shadow residual in these columns, bool ``[width]``."""
        lane_blas.lane_choose(self.s, self.r, columns)

    def _new_step(self) -> Step:
        """An iteration on these fields, which coefficients follow."""
        make_v, make_t = self.storage.product(self.p, self.v), self.storage.product(self.r, self.t)
        return partial(_step, make_v, make_t, self.pairs, self.ends, self.correction, self.coefficients)


class _HalfRecurrence(_StabilisedRecurrence):
    """The same with all fields but y, which is complex64, in 16 bits."""

    def _make_fields(self, like: Array) -> None:
        sites, _, n = like.shape
        xp = self.storage.operator.xp
        self.p, self.r, self.v, self.t, self.s = (HalfField.empty(sites, n, xp) for _ in range(5))
        for field in (self.p, self.v):
            assign(field.scales, 0)

    def _dot(self, x: Field, y: Field) -> Array:
        return half_dot(x, y)

    def _choose_shadow(self, columns: Array) -> None:
        half_update(self.s, [self.r], columns[None].astype(complex), (~columns).astype(complex))

    def _new_step(self) -> Step:
        make_v, make_t = self.storage.product(self.p, self.v), self.storage.product(self.r, self.t)
        fields = self.p, self.r, self.v, self.t, self.s
        return partial(_half_step, make_v, make_t, fields, self.correction, self.coefficients)


def _step(
    make_v: Step, make_t: Step, pairs: Array, ends: Array, correction: Array, c: BiCGstabCoefficients
) -> None:
    """Steps 1 to 4 on these arrays only, with the direction that the coefficients ask for."""
    (p, r, v), (t, shadow) = pairs, ends
    lane_blas.lane_update(p, pairs[1:], c.number("open", 2), c.number("kept")[0])
    make_v()
    bicgstab_update.bicgstab_alpha(shadow, v, c)
    lane_blas.lane_update(r, pairs[2:], c.number("minus_alpha"))
    make_t()
    bicgstab_update.bicgstab_omega(ends, r, c)
    bicgstab_update.bicgstab_residual(correction, pairs[:2], t, c)


def _half_step(
    make_v: Step, make_t: Step, fields: tuple[HalfField, ...], y: Array, c: BiCGstabCoefficients
) -> None:
    """Steps 1 to 4 on these fields in 16 bits only."""
    p, r, v, t, shadow = fields
    half_update(p, [r, v], c.number("open", 2), c.number("kept")[0])
    make_v()
    half_alpha(shadow, v, c)
    half_update(r, [v], c.number("minus_alpha"))
    make_t()
    half_omega(t, shadow, r, c)
    half_residual(y, p, r, t, c)


def _copy(out: Field, field: Field) -> None:
    """``out = field``, both whole or both in 16 bits."""
    if isinstance(field, HalfField):
        assign(out.codes, field.codes)
        assign(out.scales, field.scales)
    else:
        assign(out, field)
