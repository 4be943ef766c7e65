"""Linear operators on blocks of right-hand sides, and their composition.

A field is an array ``[*shape, N]`` with the right-hand sides last. An operator is square, complex linear, and
needs only what `LinearOperator` lists; solvers, eigensolvers and preconditioners take nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels import block_blas
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.kernels.short_numbers import HalfField, ShortField


class LinearOperator(Protocol):
    """A square linear operator on fields ``[*shape, N]`` of one dtype, any number N of right-hand sides."""

    @property
    def xp(self) -> ModuleType:
        """The library of its fields: `numpy` or `cupy`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a field without its last axis, the right-hand sides."""

    @property
    def dtype(self) -> np.dtype:
        """complex64 or complex128: that of the fields."""

    @property
    def hermitian(self) -> bool:
        """True if it equals its adjoint."""

    @property
    def positive_definite(self) -> bool:
        """True if it is Hermitian and all its eigenvalues are positive."""

    def apply(self, x: Array, out: Array | None = None) -> Array:
        """The operator times x; into `out`, never x itself, if given. Returns the result."""

    def astype(self, dtype: Any) -> LinearOperator:
        """This operator in another precision; the conversion is made once and kept."""


class HasAdjoint(LinearOperator, Protocol):
    """An operator that knows its Hermitian conjugate, as normal equations need."""

    @property
    def adjoint(self) -> HasAdjoint:
        """The Hermitian conjugate."""

    def astype(self, dtype: Any) -> HasAdjoint:
        """This operator in another precision."""


@runtime_checkable
class Shifted(Protocol):
    """A = B + shift, of an operator B that has the same eigenvectors at every shift."""

    @property
    def shift(self) -> float:
        """4 m^2 for a staggered quark of mass m."""


@runtime_checkable
class Affine(Protocol):
    """An operator that computes a x + b A x in one go."""

    def affine(self, a: float, b: float, x: Array, out: Array | None = None) -> Array:
        """``out = a x + b A x``; returns the result."""


@runtime_checkable
class Repeatable(Protocol):
    """An operator whose application works by compiled kernels alone, and computes dots on the way."""

    def application(
        self, x: Array, out: Array, dots: Array | None, a: float = 0.0, b: float = 1.0
    ) -> Callable[[], None]:
        """A function that computes ``out = a x + b A x`` of these arrays and allocates nothing.

        It takes the arrays as they are when it is called.

        dots: if given, float64 ``[N]``, receives Re conj(x) . out of each right-hand side.
        """


@runtime_checkable
class Frugal(Protocol):
    """An operator that can be applied without memory of its own."""

    def apply_through(self, x: Array, between: Array, out: Array) -> Array:
        """``out = A x``, with a field like x to work in; allocates nothing after the first time."""


@runtime_checkable
class Updating(Protocol):
    """An operator on spinors whose product goes into an update in one go."""

    def update(
        self, x: Any, source: Any, factors: tuple[complex, complex, complex], between: Any, out: Any
    ) -> Any:
        """``out = a x + b A x + c source`` with factors (a, b, c), `source` None for zero; returns `out`.

        All are fields or `stages.lqcd.kernels.short_numbers.HalfField`s, x and `source` alike, with one like
        x to work in; `out` may be x or `source`.
        """


@runtime_checkable
class Shortened(Protocol):
    """An operator that can be applied with fields of 16 bytes a colour vector, as double-half solves do."""

    def shortened(self) -> ShortOperator:
        """This operator for such fields, in single precision where it has none; made once and kept."""


@runtime_checkable
class ShortOperator(LinearOperator, Protocol):
    """A complex64 operator on short fields (`stages.lqcd.kernels.short_numbers`), or on arrays."""

    @property
    def short(self) -> bool:
        """True where fields are short; else they are arrays."""

    def application(self, x: ShortField, out: ShortField, dots: Array | None) -> Callable[[], None]:
        """A function that computes ``out = A x``, out of 20 bits and x of 16, and allocates nothing."""


@runtime_checkable
class Halved(Protocol):
    """An operator that can be applied to spinors in 16 bits (`stages.lqcd.kernels.short_numbers`)."""

    def halved(self) -> LinearOperator:
        """This operator in complex64, whose `apply` takes such fields as well; kept as that of `astype`."""

    def halved_normal(self) -> HalvedNormal:
        """A^H A of this operator in complex64, A."""


@runtime_checkable
class HalvedNormal(Protocol):
    """A^H A that can be applied to spinors in 16 bits."""

    def half_application(self, x: HalfField, out: HalfField, norms2: Array) -> Callable[[], None]:
        """A function that computes ``out = A^H A x`` and ``norms2 = |A x|^2``, and allocates nothing.

        norms2: float64 ``[N]``.
        """


def affine(A: LinearOperator, a: float, b: float, x: Array, out: Array) -> None:
    """``out = a x + b A x``; in one go where the operator is `Affine`."""
    if isinstance(A, Affine):
        A.affine(a, b, x, out)
        return
    A.apply(x, out)
    block_blas.affine(out, b, x, a)


def application(
    A: LinearOperator, x: Array, out: Array, dots: Array | None = None, a: float = 0.0, b: float = 1.0
) -> tuple[Callable[[], None], bool]:
    """A function that computes ``out = a x + b A x`` of these two arrays, as they then are, at each call.

    dots: if given, float64 ``[N]``, receives Re conj(x) . out of each right-hand side. The second result says
    whether the function keeps the rules of `stages.lqcd.kernels.stream.recorded`: it does where the
    operator is `Repeatable`.
    """
    if isinstance(A, Repeatable):
        return A.application(x, out, dots, a, b), True

    def apply() -> None:
        if (a, b) == (0, 1):
            A.apply(x, out)
        else:
            affine(A, a, b, x, out)
        if dots is not None:
            dots[...] = block_blas.dots(x, out).real

    return apply, False


def applied_through(A: LinearOperator, like: Array) -> tuple[Callable[[Array, Array], object], bool]:
    """A function of x and out that computes ``out = A x``, of fields like the one that is given.

    The second result says whether it then allocates nothing, as it does where the operator is `Frugal`.
    """
    if not isinstance(A, Frugal):
        return A.apply, False
    through, between = A.apply_through, field_like(like)

    def apply(x: Array, out: Array) -> None:
        through(x, between, out)

    return apply, True


@dataclass(frozen=True)
class Product:
    """left right: `right` acts first. Hermitian and positive definite if left is the adjoint of right."""

    left: HasAdjoint
    right: HasAdjoint

    def __post_init__(self) -> None:
        _require_same_fields(self.left, self.right)

    @property
    def xp(self) -> ModuleType:
        return self.right.xp

    @property
    def shape(self) -> tuple[int, ...]:
        return self.right.shape

    @property
    def dtype(self) -> np.dtype:
        return self.right.dtype

    @property
    def hermitian(self) -> bool:
        return self.left == self.right.adjoint

    @property
    def positive_definite(self) -> bool:
        return self.hermitian

    @property
    def adjoint(self) -> Product:
        return Product(self.right.adjoint, self.left.adjoint)

    def apply(self, x: Array, out: Array | None = None) -> Array:
        return self.left.apply(self.right.apply(x), out)

    def astype(self, dtype: Any) -> Product:
        return Product(self.left.astype(dtype), self.right.astype(dtype))


def _require_same_fields(left: LinearOperator, right: LinearOperator) -> None:
    if (left.shape, left.dtype) != (right.shape, right.dtype):
        raise InputError(
            "operators that are added or multiplied must act on the same fields, "
            f"got {left.dtype} {left.shape} and {right.dtype} {right.shape}"
        )
