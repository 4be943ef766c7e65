"""Even-odd preconditioning of M = A - D / 2 by the Schur complement of the odd sites.

    S = 1 - A_ee^-1 D_eo A_oo^-1 D_oe / 4,   S x_e = A_ee^-1 (b_e + D_eo A_oo^-1 b_o / 2)

and x_o = A_oo^-1 (b_o + D_oe x_e / 2), which solves the odd rows exactly. The asymmetric form, A_ee S =
A_ee - D_eo A_oo^-1 D_oe / 4, is gamma5-Hermitian, but converges more slowly. With a twisted mass its
gamma5-adjoint is that of -mu.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import WHOLE, Field, HalfStorage, MadeOf, Normal, Step, Storage
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.kernels import block_blas, clover
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, field_like
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.kernels.half_update import half_norms
from stages.lqcd.kernels.short_numbers import HalfField, numbers_like
from stages.lqcd.kernels.wilson_update import wilson_update
from stages.lqcd.lattice.geometry import EVEN


@dataclass(frozen=True)
class WilsonSchur(MadeOf):
    """S on the sites of `parity`, ``[site, 12, N]``; sign = -1 gives its adjoint, symmetric = False A_ee S.

    In complex64 S itself can be applied to spinors in 16 bits (`stages.lqcd.kernels.short_numbers`).

    An application needs two fields beside its result; one operator may be applied by several threads.
    """

    M: WilsonOperator
    parity: int = EVEN
    sign: int = 1
    symmetric: bool = True

    made_of = "M"
    hermitian = False
    positive_definite = False

    @property
    def operator(self) -> WilsonSchur:
        """The operator of the system that stands for M x = b: this one."""
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.M.lattice.half_volume, COMPONENTS)

    @property
    def adjoint(self) -> WilsonSchur:
        return replace(self, sign=-self.sign)

    def apply(self, x: Field, out: Field | None = None) -> Field:
        return self.apply_through(x, numbers_like(x), numbers_like(x) if out is None else out)

    def apply_through(self, x: Field, between: Field, out: Field) -> Field:
        """``out = S x``, with a field like x to work in; allocates nothing after the first time."""
        if not self.symmetric:
            return self._asymmetric(x, between, out)
        return self._hops(self._inverse(self.parity, x, out) if self.sign < 0 else x, x, between, out)

    def _asymmetric(self, x: Field, between: Field, out: Field) -> Field:
        """``out = A_ee x - D_eo A_oo^-1 D_oe x / 4``, or the adjoint."""
        parity, opposite, dslash = self.parity, 1 - self.parity, self.M.dslash
        dslash.apply_to(opposite, x, between, self.sign, **self._inverted(opposite, 1.0))
        local = self.M.local(parity, self.sign)
        return dslash.apply_to(parity, between, out, self.sign, diagonal=x, b=-0.25, **local)

    def _hops(self, start: Field, x: Field, between: Field, out: Field, factor: float = 1.0) -> Field:
        """``out = S x`` from where hops start: x, or A^-1 x / factor for the adjoint."""
        parity, opposite, dslash = self.parity, 1 - self.parity, self.M.dslash
        dslash.apply_to(opposite, start, between, self.sign, **self._inverted(opposite, 1.0))
        hop = self._inverted(parity, -0.25) if self.sign > 0 else {"b": -0.25 * factor}
        return dslash.apply_to(parity, between, out, self.sign, diagonal=x, a=1.0, **hop)

    def normal_through(
        self, x: HalfField, between: HalfField, product: HalfField, out: HalfField, norms2: Array
    ) -> None:
        """``product = S x``, ``out = S^H S x`` and ``norms2 = |S x|^2``, with a field like x to work in.

        Spinors in 16 bits. The pass that takes the norm gives A^-1 S x, too, with which hops begin.
        """
        self.apply_through(x, between, product)
        if not self.M.has_matrices:
            half_norms(product, norms2)
            self.adjoint._hops(product, product, between, out, self._constant)
        else:
            half_norms(product, norms2, self.M.clover_inverse(self.parity, -self.sign), out)
            self.adjoint._hops(out, product, between, out)

    def update(
        self,
        x: Field,
        source: Field | None,
        factors: tuple[complex, complex, complex],
        between: Field,
        out: Field,
    ) -> Field:
        """``out = a x + b S x + c source`` with factors (a, b, c), `source` None for zero; returns `out`.

        With a field like x to work in; `out` may be x or `source`. Raises InputError for an adjoint.
        """
        if self.sign < 0 or not self.symmetric:
            raise InputError(
                "updates are for the symmetric Schur complement itself: apply it, or its adjoint"
            )
        (a, b, c), parity, opposite = factors, self.parity, 1 - self.parity
        self.M.dslash.apply_to(opposite, x, between, **self._inverted(opposite, 1.0))
        hop, packed = self._inverted(parity, 1.0), self.M.dslash.packed[parity]
        terms = a + b, hop["b"] * (-0.25 * b), c
        _, inverse = hop.get("clover", ("hop", None))
        return wilson_update(packed, between, out, own=x, source=source, factors=terms, clover=inverse)

    def prepare(self, b: Array) -> tuple[Array, Array]:
        """The right-hand side on `parity` for M x = b, b ``[parity, site, 12, N]``, and b."""
        parity, opposite = self.parity, 1 - self.parity
        odd = self._inverse(opposite, b[opposite])
        source = self.M.dslash.apply_to(parity, odd, None, diagonal=b[parity], a=1.0, b=0.5)
        return self._inverse(parity, source) if self.symmetric else source, b

    def reconstruct(self, x: Array, b: Array) -> Array:
        """Solution x ``[parity, site, 12, N]`` of M x = b from the one ``[site, 12, N]`` on `parity`."""
        parity, opposite = self.parity, 1 - self.parity
        full = field_like(b)
        assign(full[parity], x)
        source = self.M.dslash.apply_to(opposite, full[parity], None, diagonal=b[opposite], a=1.0, b=0.5)
        self._inverse(opposite, source, full[opposite])
        return full

    def extend(self, x: Array) -> None:
        """Write the other parity of x ``[parity, site, 12, N]`` so that M x vanishes there."""
        parity, opposite = self.parity, 1 - self.parity
        self.M.dslash.apply_to(opposite, x[parity], x[opposite], **self._inverted(opposite, 0.5))

    def astype(self, dtype: DTypeLike) -> WilsonSchur:
        return self if self.dtype == dtype else replace(self, M=self.M.astype(dtype))

    def storage(self, name: str) -> Storage | None:
        """Half: spinors in 16 bits, of the symmetric form. Raises InputError for an adjoint."""
        if name == WHOLE:
            return Storage(self, _Products(self))
        if not self.symmetric:
            return None
        if self.sign < 0:
            raise InputError("half precision is for the Schur complement itself, not for its adjoint")
        S = self.astype(np.complex64)
        return _HalfSpinors(S, _Products(S))

    @cached_property
    def _constant(self) -> float:
        if self.M.constant == 0:
            raise InputError(
                "a Wilson operator without clover term has no even-odd form if its diagonal m + 4 vanishes, "
                f"at mass {self.M.mass}: change the mass"
            )
        return 1 / self.M.constant

    def _inverted(self, parity: int, factor: float) -> dict[str, Any]:
        """The terms of the dslash that give factor A^-1 D x on `parity`."""
        if not self.M.has_matrices:
            return {"b": factor * self._constant}
        return {"b": factor, "clover": ("hop", self.M.clover_inverse(parity, self.sign))}

    def _inverse(self, parity: int, x: Field, out: Field = None) -> Array:
        """A^-1 x on `parity`, in `out` or a new field."""
        out = field_like(x) if out is None else out
        if not self.M.has_matrices:
            return block_blas.scale(x, self._constant, out)
        return clover.multiply(self.M.clover_inverse(parity, self.sign), x, out)


class _Products:
    """Steps that compute S x, with one field to work in for all of the same width."""

    def __init__(self, S: WilsonSchur) -> None:
        self.S = S
        self.between: Field = None

    def __call__(self, x: Field, out: Field, dots: Array | None, a: float, b: float) -> Step:
        if dots is not None or (a, b) != (0, 1):
            raise NotImplementedError("a step of a Schur complement that is not Hermitian computes S x only")
        if self.between is None or self.between.shape != x.shape:
            self.between = numbers_like(x)
        return partial(self.S.apply_through, x, self.between, out)


class _HalfSpinors(HalfStorage):
    """S, or S^H S, of spinors in 16 bits."""

    def normal(self) -> HalfStorage:
        S: Any = self.operator
        return HalfStorage(Normal(S), partial(_normal_step, S))


def _normal_step(S: WilsonSchur, x: HalfField, out: HalfField, norms2: Array, a: float, b: float) -> Step:
    """A step that computes ``out = S^H S x`` and ``norms2 = |S x|^2``; two fields like x are made now."""
    return partial(S.normal_through, x, numbers_like(x), numbers_like(x), out, norms2)
