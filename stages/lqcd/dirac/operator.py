"""Linear operators on blocks of right-hand sides, and how recurrences store the fields that they act on.

A field is an array ``[*shape, N]`` with the right-hand sides last. An operator is square, complex linear, and
needs only what `LinearOperator` lists; solvers, eigensolvers and preconditioners take nothing else. One that
is `Stored` says on which fields a recurrence can work with it, and how its product is computed there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from types import ModuleType
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

from stages.base.errors import InputError
from stages.lqcd.kernels import block_blas, stream
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, converted, field_like, zeros_like
from stages.lqcd.kernels.half_update import half_dot
from stages.lqcd.kernels.short_numbers import HalfField, ShortField, numbers_like, put, to_half, to_short
from stages.lqcd.lattice.geometry import EVEN, ODD

Field: TypeAlias = Any
"""An array, a ShortField or a HalfField."""

Step: TypeAlias = Callable[[], None]
"""Work on the same arrays at each call, as they then are."""

WHOLE, HALF = "whole", "half"
"""Names of storages: all numbers in the operator's dtype; 16 bits, in part 20, for a number."""


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

    def astype(self, dtype: DTypeLike) -> LinearOperator:
        """This operator in another precision; the conversion is made once and kept."""


class HoppingTerm:
    """An operator between opposite parities; kernels take its links packed, in complex64 or complex128."""

    name: str
    dtype: Any

    def __post_init__(self) -> None:
        dtype = np.dtype(self.dtype)
        if dtype not in (np.complex64, np.complex128):
            raise InputError(f"{self.name} is complex64 or complex128, got {dtype}")
        object.__setattr__(self, "dtype", dtype)

    @cached_property
    def packed(self) -> tuple[Any, Any]:
        """Packed links into the even and into the odd sites."""
        return self._packed_into(EVEN), self._packed_into(ODD)

    def _packed_into(self, parity: int) -> Any:
        raise NotImplementedError


class MadeOf:
    """An operator on the fields of what it is made of: that of its attributes which `made_of` names."""

    made_of: ClassVar[str] = "dslash"

    @property
    def xp(self) -> ModuleType:
        """`numpy` or `cupy`: where fields lie."""
        return getattr(self, self.made_of).xp

    @property
    def dtype(self) -> np.dtype:
        """complex64 or complex128: that of fields."""
        return getattr(self, self.made_of).dtype


@runtime_checkable
class Stored(Protocol):
    """An operator that has products of its own for the fields of a recurrence."""

    def storage(self, name: str) -> Storage | None:
        """The storage `WHOLE` or `HALF` for this operator; None where it has nothing of its own there."""


class Storage:
    """Fields of a recurrence as arrays ``[*shape, N]`` of the operator's dtype, and the product on them.

    operator: of that dtype. application: makes of (x, out, dots, a, b) the step of `product`, which works by
    compiled kernels alone and allocates nothing; None: by `apply`. repeatable: whether there is one, so that
    steps can be recorded (`stages.lqcd.kernels.stream`).
    """

    def __init__(self, operator: LinearOperator, application: Callable[..., Step] | None = None) -> None:
        self.operator = operator
        self.repeatable = application is not None
        self._application = application or partial(_by_apply, operator)

    def product(
        self, x: Field, out: Field, dots: Array | None = None, a: float = 0.0, b: float = 1.0
    ) -> Step:
        """A step that computes ``out = a x + b A x`` of these fields.

        dots: if given, float64 ``[N]``, receives Re conj(x) . out of each right-hand side.
        """
        return self._application(x, out, dots, a, b)

    def recorded(self, step: Step) -> Step:
        """A step of products and updates, made cheap to repeat where it can be."""
        return stream.recorded(step, self.operator.xp) if self.repeatable else step

    def repeated(self, step: Step) -> Step:
        """A step made cheap to repeat on a device; on the host it need not work by compiled kernels."""
        return stream.repeated(step, self.operator.xp) if self.repeatable else step

    def stored(self, values: Array) -> Field:
        """A residual ``[*shape, N]`` in this storage, perhaps itself."""
        return converted(values, self.operator.dtype)

    def directions(self, residual: Field, correction: Array) -> tuple[Field, Field]:
        """Fields for directions p = 0 and A p, beside a residual as stored and y of the operator's dtype."""
        return zeros_like(residual), field_like(residual)

    def norms2(self, x: Field) -> Array:
        """|x|^2 ``[N]``."""
        return block_blas.norms2(x)

    def dots(self, x: Field, y: Field) -> Array:
        """conj(x) . y ``[N]``."""
        return block_blas.dots(x, y)

    def normal(self) -> Storage:
        """Storage of A^H A with the same fields, of an operator that has an adjoint."""
        A: Any = self.operator
        return Storage(Normal(A))


class ShortStorage(Storage):
    """Colour vectors in 16 bytes (`stages.lqcd.kernels.short_numbers`), of a staggered operator in complex64.

    The residual r has 20 bits a number, and A p, which moves it: what rounding changes there, the recurrence
    cannot know; p has 16. On 8^3 x 16, m = 0.005, 20 bits cost 3 % of the iterations of single precision,
    16 bits 5 %, at m = 0.02 none and 7 %.
    """

    def recorded(self, step: Step) -> Step:
        return self.repeated(step)  # no compiled calls on the host

    def stored(self, values: Array) -> ShortField:
        return to_short(converted(values, np.complex64), 20)

    def directions(self, residual: Field, correction: Array) -> tuple[Field, Field]:
        p, ap = numbers_like(residual), numbers_like(residual, bits=20)
        put(p, zeros_like(correction))
        return p, ap


class HalfStorage(Storage):
    """Spinors in 16 bits (`stages.lqcd.kernels.short_numbers`), of an operator in complex64."""

    def recorded(self, step: Step) -> Step:
        return self.repeated(step)  # no compiled calls on the host

    def stored(self, values: Array) -> HalfField:
        return to_half(converted(values, np.complex64))

    def directions(self, residual: Field, correction: Array) -> tuple[Field, Field]:
        p, ap = numbers_like(residual), numbers_like(residual)
        assign(p.scales, 0)
        return p, ap

    def norms2(self, x: Field) -> Array:
        return half_dot(x, x).real

    def dots(self, x: Field, y: Field) -> Array:
        return half_dot(x, y)


def whole_storage(A: LinearOperator) -> Storage:
    """Storage of whole fields for any operator, in its precision."""
    return (A.storage(WHOLE) if isinstance(A, Stored) else None) or Storage(A)


def half_storage(A: LinearOperator) -> Storage | None:
    """Storage of fields in half precision for an operator that has one."""
    return A.storage(HALF) if isinstance(A, Stored) else None


def affine(A: LinearOperator, a: float, b: float, x: Array, out: Array) -> None:
    """``out = a x + b A x``."""
    whole_storage(A).product(x, out, None, a, b)()


def _by_apply(A: LinearOperator, x: Array, out: Array, dots: Array | None, a: float, b: float) -> Step:
    def apply() -> None:
        A.apply(x, out)
        if (a, b) != (0, 1):
            block_blas.affine(out, b, x, a)
        if dots is not None:
            dots[...] = block_blas.dots(x, out).real

    return apply


@dataclass(frozen=True)
class Normal(MadeOf):
    """A^H A of an operator with an `adjoint`: Hermitian and positive definite."""

    A: Any

    made_of = "A"
    hermitian = True
    positive_definite = True

    @property
    def shape(self) -> tuple[int, ...]:
        return self.A.shape

    def apply(self, x: Array, out: Array | None = None) -> Array:
        return self.A.adjoint.apply(self.A.apply(x), out)

    def astype(self, dtype: DTypeLike) -> Normal:
        return Normal(self.A.astype(dtype))
