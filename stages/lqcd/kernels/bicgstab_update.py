"""Sums of BiCGstab and the coefficients that they give: `stages.lqcd.solvers.bicgstab` has the formulae.

Fields are ``[..., N]``, N up to 64 on a GPU, and every right-hand side has coefficients of its own. Raises
InputError for operands that do not fit each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels import lane_blas
from stages.lqcd.kernels.cg_update import quotient
from stages.lqcd.kernels.dispatch import Array, array_module, implementation_of
from stages.lqcd.kernels.operands import check_array, check_blocks

NUMBERS = ("open", "back", "kept", "alpha", "omega", "minus_alpha", "rho", "beta", "sv")
REALS = ("r2", "angle2", "target2", "shadow2")
"""Orders of the rows in memory, which `bicgstab_update.cu` relies on."""


@dataclass(frozen=True)
class BiCGstabCoefficients:
    """Coefficients of each right-hand side, where the fields are.

    numbers: complex128 ``[9, N]``. The next direction is kept p + open r + back v; alpha and its negative,
    omega, rho and beta; sv is s^H v. reals: float64 ``[4, N]``. |r|^2; |rho|^2 / (|s|^2 |r|^2), zero where
    there is no beta; the |r|^2 to reach; |s|^2 of the shadow residual.
    """

    numbers: Array
    reals: Array

    @classmethod
    def zeros(cls, like: Array) -> BiCGstabCoefficients:
        """Coefficients of zero for the right-hand sides of the field `like`."""
        xp, rhs = array_module(like), like.shape[-1]
        return cls(xp.zeros((len(NUMBERS), rhs), complex), xp.zeros((len(REALS), rhs)))

    def number(self, name: str, count: int = 1) -> Array:
        """Rows ``[count, N]`` from this one on."""
        first = NUMBERS.index(name)
        return self.numbers[first : first + count]

    def real(self, name: str) -> Array:
        """A row ``[N]``."""
        return self.reals[REALS.index(name)]

    @property
    def active(self) -> Array:
        """Right-hand sides that have not reached their target, bool ``[N]``."""
        return self.real("r2") > self.real("target2")

    def give_alpha(self, sv: Array) -> None:
        """Coefficient alpha of s^H v ``[N]``."""
        alpha = quotient(self.number("rho")[0], sv, self.active & (sv != 0))
        self.number("sv")[0], self.number("alpha")[0], self.number("minus_alpha")[0] = sv, alpha, -alpha

    def give_omega(self, t2: Array, st: Array, tr: Array) -> None:
        """Coefficient omega, and the next rho and beta, of |t|^2, s^H t and t^H r, ``[N]`` each."""
        before, alpha, sv = (self.number(name)[0] for name in ("rho", "alpha", "sv"))
        omega = quotient(tr, t2, self.active & (t2 > 0))
        rho, denominator = (before - alpha * sv) - omega * st, before * omega
        beta = quotient(rho * alpha, denominator, self.active & (denominator != 0))
        self.number("omega")[0], self.number("beta")[0], self.number("rho")[0] = omega, beta, rho

    def give_direction(self, r2: Array) -> None:
        """A report for the host and the coefficients of the next direction, of |r|^2 ``[N]``."""
        rho, beta, size = self.number("rho")[0], self.number("beta")[0], self.real("shadow2") * r2
        self.real("r2")[:] = r2
        self.real("angle2")[:] = quotient(abs(rho) ** 2, size, (beta != 0) & (size > 0))
        self.direct()

    def direct(self) -> None:
        """The coefficients of the next direction, of the others."""
        xp, active, beta = array_module(self.numbers), self.active, self.number("beta")[0]
        self.number("open")[0] = active
        self.number("back")[0] = -self.number("omega")[0] * beta * active
        self.number("kept")[0] = xp.where(active, beta, 1)


def bicgstab_alpha(shadow: Array, v: Array, coefficients: BiCGstabCoefficients) -> None:
    """``sv = shadow^H v`` and alpha."""
    _check(coefficients, shadow=shadow, v=v)
    if array_module(v) is not np:
        implementation_of("bicgstab_update.bicgstab_alpha", "cuda")(shadow, v, coefficients)
        return
    coefficients.give_alpha(lane_blas.lane_dots(shadow[None], v)[0])


def bicgstab_omega(ends: Array, r: Array, coefficients: BiCGstabCoefficients) -> None:
    """Coefficient omega, and the next rho and beta; ends: t and the shadow residual, ``[2, ..., N]``."""
    t, shadow = ends
    _check(coefficients, t=t, shadow=shadow, r=r)
    if array_module(r) is not np:
        implementation_of("bicgstab_update.bicgstab_omega", "cuda")(ends, r, coefficients)
        return
    (tt, st), tr = lane_blas.lane_dots(ends, t), lane_blas.lane_dots(ends[:1], r)[0]
    coefficients.give_omega(tt.real, st, tr)


def bicgstab_residual(y: Array, pair: Array, t: Array, coefficients: BiCGstabCoefficients) -> None:
    """``y += alpha p + omega r`` and ``r -= omega t`` in place, p and r being the `pair` ``[2, ..., N]``.

    Then |r|^2, and the coefficients of the next direction.
    """
    p, r = pair
    _check(coefficients, y=y, p=p, r=r, t=t)
    if array_module(y) is not np:
        implementation_of("bicgstab_update.bicgstab_residual", "cuda")(y, pair, t, coefficients)
        return
    lane_blas.lane_update(y, pair, coefficients.number("alpha", 2))
    lane_blas.lane_update(r, t[None], -coefficients.number("omega"))
    coefficients.give_direction(lane_blas.lane_dots(r[None], r)[0].real)


def _check(coefficients: BiCGstabCoefficients, **fields: Array) -> None:
    name, first = next(iter(fields.items()))
    check_blocks(**{name: first})
    for name, array in fields.items():
        check_array(name, array, first.shape, first.dtype)
    if (rhs := coefficients.reals.shape[-1]) != first.shape[-1]:
        raise InputError(f"coefficients must be those of {first.shape[-1]} right-hand sides, got {rhs}")
