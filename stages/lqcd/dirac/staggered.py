"""Staggered operators, improved (fat and long links) and naive, on blocks of right-hand sides.

    D psi(x) = sum_mu [ X_mu(x) psi(x+mu) - X_mu(x-mu)^dag psi(x-mu)
                        + N_mu(x) psi(x+3mu) - N_mu(x-3mu)^dag psi(x-3mu) ]

with the phases eta_mu and the boundary signs inside X and N (MILC's conventions, `stages.lqcd.gauge.phases`);
no factor 1/2, so that the full operator is M = 2 m + D (`stages.lqcd.dirac.full_lattice`). D is
anti-Hermitian and connects opposite parities only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import WHOLE, Field, HoppingTerm, MadeOf, ShortStorage, Step, Storage
from stages.lqcd.gauge.hisq import StaggeredLinks
from stages.lqcd.kernels import hisq_dslash
from stages.lqcd.kernels.directions import HISQ_DIRECTIONS, NAIVE_DIRECTIONS
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.link_forms import WIDE, Packing, StaggeredForm
from stages.lqcd.kernels.short_numbers import numbers_like
from stages.lqcd.lattice.geometry import EVEN, Lattice

SHORT = "short"
"""Name of an operator's form for short fields, beside its dtypes."""


class StaggeredHops(HoppingTerm):
    """D, or the hops of a Laplacian (`stages.lqcd.dirac.laplacian`)."""

    lattice: Lattice

    def apply_to(
        self,
        parity: int,
        x: Field,
        out: Field | None = None,
        diagonal: Field | None = None,
        a: float = 0.0,
        b: float = 1.0,
        dots: Array | None = None,
    ) -> Field:
        """``out = a diagonal + b D x``: x ``[site, 3, N]`` on the opposite parity; out, diagonal on `parity`.

        `out` is made if not given and may be `diagonal`, never `x`. dots: if given, float64 ``[N]``, receives
        Re conj(diagonal) . out of each right-hand side. Returns `out`.
        """
        packed = self.packed[parity]
        out = numbers_like(x) if out is None else out
        return hisq_dslash.hisq_dslash(packed, x, out, diagonal=diagonal, a=a, b=b, dots=dots)

    def astype(self, dtype: DTypeLike) -> StaggeredHops:
        """This operator in another precision."""
        raise NotImplementedError


@dataclass(frozen=True)
class StaggeredDslash(StaggeredHops):
    """D of one set of links in one precision; fields on one parity are ``[site, 3, N]``.

    dtype: complex64 or complex128. packing: how links are kept on a GPU. short: x, diagonal and out are short
    fields (`shortened`).
    """

    links: StaggeredLinks
    dtype: Any = np.complex128
    packing: Packing = WIDE
    short: bool = False
    _precisions: dict[np.dtype | str, StaggeredDslash] = field(
        default_factory=dict, repr=False, compare=False
    )

    lattice: Lattice = field(init=False, repr=False, compare=False)

    name = "a staggered operator"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "lattice", self.links.lattice)

    @property
    def xp(self) -> ModuleType:
        return array_module(self.links.fat)

    def astype(self, dtype: DTypeLike) -> StaggeredDslash:
        """This operator in another precision, which this one keeps: its links are packed once.

        That one does not know this one, so that the memory of both is free as soon as nobody uses this one.
        """
        dtype = np.dtype(dtype)
        if dtype == self.dtype:
            return self
        if dtype not in self._precisions:
            self._precisions[dtype] = replace(self, dtype=dtype, short=False, _precisions={})
        return self._precisions[dtype]

    def shortened(self) -> StaggeredDslash:
        """This operator for short fields, its links packed for them; it is kept.

        In single precision, on fields in complex64, where links have no form for short ones: packed for wide
        blocks, without three hops, or with long links that are not one real number times U(3) matrices.
        """
        if self.packing.staggered("half", self.directions) is not StaggeredForm.SHORT:
            return self.astype(np.complex64)
        if SHORT not in self._precisions:
            short = replace(self, dtype=np.complex64, short=True, _precisions={})
            fits = all(packed.short for packed in short.packed)
            self._precisions[SHORT] = short if fits else self.astype(np.complex64)
        return self._precisions[SHORT]

    def for_many_products(self) -> StaggeredDslash:
        """This operator in double, its links packed for as long as the result is kept."""
        return self.astype(np.complex128).laid_out(replace(self.packing, double=True))

    def laid_out(self, packing: Packing) -> StaggeredDslash:
        """This operator with links packed so, for as long as the result is kept; itself if they are."""
        return self if self.packing == packing else replace(self, packing=packing, _precisions={})

    def pack(self) -> None:
        """Lay the links out for the kernels now, not when D is first applied."""
        self.packed  # noqa: B018 - made and kept

    @property
    def directions(self) -> int:
        return NAIVE_DIRECTIONS if self.links.long is None else HISQ_DIRECTIONS

    @property
    def flops(self) -> int:
        """Floating-point operations of D on one right-hand side: 3 x 3 matrices times vectors, summed."""
        return self.lattice.half_volume * (66 * self.directions + 6 * (self.directions - 1))

    def _packed_into(self, parity: int) -> hisq_dslash.PackedLinks:
        precision = "double" if self.dtype == np.complex128 else "half" if self.short else "single"
        form = self.packing.staggered(precision, self.directions)
        return hisq_dslash.pack_fields(
            self.links.fat, self.links.long, self.lattice, parity, self.dtype, form
        )


class _Workspace:
    """One field that is kept between applications and remade when a block of another shape comes."""

    scratch = True

    def __init__(self) -> None:
        self._field: Any = None

    def like(self, x: Field) -> Field:
        if type(self._field) is not type(x) or self._field.shape != x.shape:
            self._field = numbers_like(x)
        return self._field


@dataclass(frozen=True)
class SquaredDslash(MadeOf):
    """B + constant on the sites of parity p, B = -D_po D_op, with o the opposite one.

    Hermitian, and B without a negative eigenvalue if D is anti-Hermitian.

    Fields are `[site, 3, N]`. An application is two calls of the dslash kernel; the field between them is
    kept, so one operator must not be applied by two threads.
    """

    dslash: StaggeredHops
    parity: int = EVEN
    constant: float = 0.0
    _between: _Workspace = field(default_factory=_Workspace, repr=False, compare=False)

    hermitian = True
    positive_definite = False

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.dslash.lattice.half_volume, 3)

    def apply(self, x: Array, out: Array | None = None) -> Array:
        diagonal = x if self.constant else None
        return self._product(x, self._between.like(x), out, None, diagonal, self.constant, 1.0)

    def application(self, x: Field, out: Field, dots: Array | None, a: float = 0.0, b: float = 1.0) -> Step:
        """A step that computes ``out = a x + b (B + constant) x`` in the same two calls.

        It takes the arrays as they are when it is called. dots: if given, float64 ``[N]``, receives
        Re conj(x) . out of each right-hand side.
        """
        a += b * self.constant
        diagonal = None if a == 0 and dots is None else x
        return partial(self._product, x, self._between.like(x), out, dots, diagonal, a, b)

    def storage(self, name: str) -> Storage | None:
        return Storage(self, self.application) if name == WHOLE else None

    def _product(
        self, x: Field, between: Field, out: Field, dots: Array | None, diagonal: Field, a: float, b: float
    ) -> Field:
        self.dslash.apply_to(1 - self.parity, x, between)
        return self.dslash.apply_to(self.parity, between, out, diagonal, a, -b, dots)

    def astype(self, dtype: DTypeLike) -> SquaredDslash:
        if self.dtype == dtype:
            return self
        return SquaredDslash(self.dslash.astype(dtype), self.parity, self.constant)


@dataclass(frozen=True)
class NormalOperator(MadeOf):
    """A = B + 4 m^2 on the sites of one parity: Hermitian, positive definite; `[site, 3, N]`.

    It is M^dag M restricted to one parity. mass: m > 0 of M = 2 m + D, InputError otherwise. `massless` is B,
    whose eigenvectors are those of A at every mass. As B it must not be applied by two threads.
    """

    dslash: StaggeredDslash
    mass: float
    parity: int = EVEN

    hermitian = True
    positive_definite = True

    def __post_init__(self) -> None:
        if not self.mass > 0:
            raise InputError(
                f"the mass of a staggered solve must be positive, got {self.mass}: "
                "4 m^2 - D^2 is not positive definite otherwise"
            )

    @cached_property
    def massless(self) -> SquaredDslash:
        """B = -D_po D_op."""
        return SquaredDslash(self.dslash, self.parity)

    @property
    def shift(self) -> float:
        """4 m^2."""
        return 4 * self.mass**2

    @property
    def shape(self) -> tuple[int, ...]:
        return self.massless.shape

    def apply(self, x: Array, out: Array | None = None) -> Array:
        out = numbers_like(x) if out is None else out
        self.application(x, out, None)()
        return out

    def application(self, x: Field, out: Field, dots: Array | None, a: float = 0.0, b: float = 1.0) -> Step:
        """A step that computes ``out = a x + b A x``, as that of `SquaredDslash`."""
        return self.massless.application(x, out, dots, a + b * self.shift, b)

    def astype(self, dtype: DTypeLike) -> NormalOperator:
        return self if self.dtype == dtype else replace(self, dslash=self.dslash.astype(dtype))

    def storage(self, name: str) -> Storage:
        """Half: short fields, or single precision where links have no form for them."""
        if name == WHOLE:
            return Storage(self, self.application)
        A = replace(self, dslash=self.dslash.shortened())
        return (ShortStorage if A.dslash.short else Storage)(A, A.application)
