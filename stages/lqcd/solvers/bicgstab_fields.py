"""The fields of BiCGstab and what it does with them: in one precision, or in 16 bits.

Both hold the direction p, the residual r, v = A p, t = A r, the shadow residual s and the correction y;
`stages.lqcd.solvers.bicgstab` has the formulae.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator, applied_through
from stages.lqcd.kernels import bicgstab_update, lane_blas, stream
from stages.lqcd.kernels.bicgstab_update import BiCGstabCoefficients
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, converted, field_like, zeros_like
from stages.lqcd.kernels.half_update import half_alpha, half_dot, half_omega, half_residual, half_update
from stages.lqcd.kernels.short_numbers import HalfField, numbers_like, take, to_half

Step = Callable[[], None]
"""Steps 1 to 4, with the direction that the coefficients ask for."""


class WholeFields:
    """All ``[..., width]`` of the operator's precision; neighbours in memory enter one sum or update."""

    def __init__(self, A: LinearOperator, like: Array) -> None:
        self.A = A
        self.pairs = zeros_like(like, (3, *like.shape), A.dtype)  # p, r, v
        self.ends = field_like(like, (2, *like.shape), A.dtype)  # t, s
        self.correction = field_like(like, dtype=A.dtype)

    def begin(self, residual: Array) -> Array:
        """This r, and y = 0; returns |r|^2."""
        r = self.pairs[1]
        assign(r, residual)
        assign(self.correction, 0)
        return lane_blas.lane_dots(r[None], r)[0].real

    def aim(self) -> None:
        """The residual becomes the shadow residual."""
        assign(self.ends[1], self.pairs[1])

    def aim_at(self, columns: Array) -> None:
        """The residual becomes the shadow residual in these columns, bool ``[width]``."""
        lane_blas.lane_choose(self.ends[1], self.pairs[1], columns)

    def take(self, columns: NDArray[np.intp]) -> tuple[Array, ...]:
        """p, v and s of these columns."""
        return tuple(lane_blas.lane_take(x, columns) for x in (self.pairs[0], self.pairs[2], self.ends[1]))

    def put(self, fields: tuple[Array, ...]) -> None:
        """p, v and s as `take` gave them."""
        for field, kept in zip((self.pairs[0], self.pairs[2], self.ends[1]), fields, strict=True):
            assign(field, kept)

    def rho(self) -> Array:
        """s^H r."""
        return lane_blas.lane_dots(self.ends[1:], self.pairs[1])[0]

    def step(self, c: BiCGstabCoefficients) -> Step:
        """An iteration on these fields, which coefficients follow."""
        apply, repeatable = applied_through(self.A, self.correction)
        step = partial(_whole_step, apply, self.pairs, self.ends, self.correction, c)
        return stream.repeated(step, self.A.xp) if repeatable else step


class HalfFields:
    """All but y in 16 bits (`stages.lqcd.kernels.short_numbers`), for Wilson operators; y is complex64."""

    def __init__(self, A: LinearOperator, like: Array) -> None:
        self.A: Any = A
        sites, _, n = like.shape
        self.p, self.r, self.v, self.t, self.s = (HalfField.empty(sites, n, A.xp) for _ in range(5))
        self.correction = field_like(like, dtype=np.complex64)
        for field in (self.p, self.v):
            assign(field.scales, 0)

    def begin(self, residual: Array) -> Array:
        """This r, and y = 0; returns |r|^2."""
        to_half(converted(residual, np.complex64), self.r)
        assign(self.correction, 0)
        return half_dot(self.r, self.r).real

    def aim(self) -> None:
        """The residual becomes the shadow residual."""
        assign(self.s.codes, self.r.codes)
        assign(self.s.scales, self.r.scales)

    def aim_at(self, columns: Array) -> None:
        """The residual becomes the shadow residual in these columns, bool ``[width]``."""
        half_update(self.s, [self.r], columns[None].astype(complex), (~columns).astype(complex))

    def take(self, columns: NDArray[np.intp]) -> tuple[Any, ...]:
        """p, v and s of these columns."""
        return tuple(take(x, columns) for x in (self.p, self.v, self.s))

    def put(self, fields: tuple[Any, ...]) -> None:
        """p, v and s as `take` gave them."""
        for own, kept in zip((self.p, self.v, self.s), fields, strict=True):
            assign(own.codes, kept.codes)
            assign(own.scales, kept.scales)

    def rho(self) -> Array:
        """s^H r."""
        return half_dot(self.s, self.r)

    def step(self, c: BiCGstabCoefficients) -> Step:
        """An iteration on these fields, which coefficients follow."""
        return stream.repeated(partial(self._step, numbers_like(self.p), c), self.A.xp)

    def _step(self, between: Any, c: BiCGstabCoefficients) -> None:
        p, r, v, t, s = self.p, self.r, self.v, self.t, self.s
        half_update(p, [r, v], c.number("open", 2), c.number("kept")[0])
        self.A.apply_through(p, between, v)
        half_alpha(s, v, c)
        half_update(r, [v], c.number("minus_alpha"))
        self.A.apply_through(r, between, t)
        half_omega(t, s, r, c)
        half_residual(self.correction, p, r, t, c)


def _whole_step(
    apply: Callable[[Array, Array], object],
    pairs: Array,
    ends: Array,
    correction: Array,
    coefficients: BiCGstabCoefficients,
) -> None:
    (p, r, v), (t, shadow), c = pairs, ends, coefficients
    lane_blas.lane_update(p, pairs[1:], c.number("open", 2), c.number("kept")[0])
    apply(p, v)
    bicgstab_update.bicgstab_alpha(shadow, v, c)
    lane_blas.lane_update(r, pairs[2:], c.number("minus_alpha"))
    apply(r, t)
    bicgstab_update.bicgstab_omega(ends, r, c)
    bicgstab_update.bicgstab_residual(correction, pairs[:2], t, c)
