"""Vector updates of batched conjugate gradients: fields ``[site, 3, N]``, one of each number for each rhs.

In fields of few bits (`stages.lqcd.kernels.short_numbers`) x is complex64; of ShortFields r and A p have 20
bits, p has 16. Sums are those of the numbers before they are rounded to that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, array_module, kernel
from stages.lqcd.kernels.operands import check_array, check_blocks
from stages.lqcd.kernels.short_numbers import HalfField, ShortField, check_half_field, check_short_field

CGField = TypeVar("CGField", Array, ShortField, HalfField)
ROWS = ("r2", "pap", "target2", "gamma", "alpha", "beta")
"""Order of the rows in memory, which `cg_update.cu` relies on."""


@dataclass(frozen=True)
class CGCoefficients:
    """|r|^2, p^H A p, the |r|^2 to reach, p^H r, and the coefficients alpha and beta: float64 ``[N]`` each.

    They are views of one array `numbers`, float64 ``[6, N rounded up to even]``: rows start on 16 bytes.
    """

    numbers: Array
    rhs: int

    @classmethod
    def zeros(cls, like: Array) -> CGCoefficients:
        """Coefficients of zero for the right-hand sides of the field `like`, ``[..., N]``."""
        rhs = like.shape[-1]
        return cls(array_module(like).zeros((len(ROWS), rhs + rhs % 2)), rhs)

    @property
    def r2(self) -> Array:
        return self._row("r2")

    @property
    def pap(self) -> Array:
        return self._row("pap")

    @property
    def target2(self) -> Array:
        return self._row("target2")

    @property
    def gamma(self) -> Array:
        return self._row("gamma")

    @property
    def alpha(self) -> Array:
        return self._row("alpha")

    @property
    def beta(self) -> Array:
        return self._row("beta")

    def _row(self, name: str) -> Array:
        return self.numbers[ROWS.index(name), : self.rhs]


def quotient(numerator: Array | float, denominator: Array, where: Array) -> Array:
    """Quotients numerator / denominator, zero outside the mask `where`."""
    xp = array_module(denominator)
    return xp.where(where, numerator / xp.where(where, denominator, 1), 0)


def cg_advance(x: Array, p: CGField, r: CGField, coefficients: CGCoefficients) -> None:
    """``x += alpha p``, then ``p = r + beta p``, in place; a column with r2 <= target2 keeps p.

    Where alpha is zero x keeps its bits, and where beta is zero p becomes r, whatever p held.
    """
    if isinstance(r, ShortField):
        _check_short(coefficients, r, p=(p, 16))
        check_array("x", x, r.shape, np.dtype(np.complex64))
    elif isinstance(r, HalfField):
        _check_half(coefficients, r, p=p)
        check_array("x", x, r.shape, np.dtype(np.complex64))
    else:
        _check_cg(coefficients, x=x, p=p, r=r)
    kernel("cg_update.cg_advance", type(x))(x, p, r, coefficients)


def cg_residual(r: CGField, ap: CGField, coefficients: CGCoefficients) -> None:
    """``alpha = gamma / pap``, ``r -= alpha ap`` in place, ``beta = |r|^2 / r2``, ``gamma = r2 = |r|^2``.

    alpha and beta are zero, and r keeps its bits whatever ap holds, where r2 <= target2 or pap is not
    positive.
    """
    if isinstance(r, ShortField):
        _check_short(coefficients, r, ap=(ap, 20))
    elif isinstance(r, HalfField):
        _check_half(coefficients, r, ap=ap)
    else:
        _check_cg(coefficients, r=r, ap=ap)
    kernel("cg_update.cg_residual", type(coefficients.numbers))(r, ap, coefficients)


def _check_cg(coefficients: CGCoefficients, **fields: Array) -> None:
    """Raise InputError unless the fields match and there is one of each number for each right-hand side."""
    name, first = next(iter(fields.items()))
    check_blocks(**{name: first})
    for name, array in fields.items():
        check_array(name, array, first.shape, first.dtype)
    _check_count(coefficients, first.shape[-1])


def _check_short(coefficients: CGCoefficients, r: ShortField, **others: tuple[Any, int]) -> None:
    """Raise InputError unless r has 20 bits, and the other fields of so many bits match it."""
    check_short_field("r", r, r.shape, 20)
    for name, (other, bits) in others.items():
        check_short_field(name, other, r.shape, bits)
    _check_count(coefficients, r.shape[2])


def _check_half(coefficients: CGCoefficients, r: HalfField, **others: Any) -> None:
    """Raise InputError unless all are fields in 16 bits of one shape."""
    for name, each in (("r", r), *others.items()):
        check_half_field(name, each, r.shape)
    _check_count(coefficients, r.shape[2])


def _check_count(coefficients: CGCoefficients, rhs: int) -> None:
    if coefficients.rhs != rhs:
        raise InputError(f"coefficients must be those of {rhs} right-hand sides, got {coefficients.rhs}")
