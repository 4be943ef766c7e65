"""Wilson, Wilson-clover and twisted-mass operators on blocks of right-hand sides.

    M = A - D / 2,   A = m + sum_mu w_mu + C - i mu gamma5,
    D psi(x) = sum_mu w_mu [ (1 - gamma_mu) U_mu(x) psi(x+mu) + (1 + gamma_mu) U_mu(x-mu)^dag psi(x-mu) ]

as in Chroma, in the DeGrand-Rossi basis (`stages.lqcd.kernels.gamma`); weights w and clover term C come with
the links (`stages.lqcd.gauge.wilson_links`). kappa = 1 / (2 m + 8), M_kappa = 2 kappa M. gamma5 M(mu) gamma5
= M(-mu)^dag: with a twisted mass the flavours of a doublet, +mu and -mu, are each other's. The sign of mu is
tmLQCD's, whose gamma5, gamma_t gamma_x gamma_y gamma_z, is minus that of this basis.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import HoppingTerm, MadeOf
from stages.lqcd.gauge.wilson_links import WilsonLinks
from stages.lqcd.kernels import clover, wilson_dslash
from stages.lqcd.kernels.clover import PackedClover
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.fields import field_like, zeros_like
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.kernels.link_forms import WIDE, Packing
from stages.lqcd.kernels.short_numbers import SpinorField, numbers_like
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

DSLASH_FLOPS, CLOVER_FLOPS = 1320, 504
"""Of D and of a product with A or A^-1, per site and right-hand side (QUDA's count)."""


def mass_of_kappa(kappa: float) -> float:
    """Quark mass m = 1 / (2 kappa) - 4; InputError unless kappa > 0."""
    if not kappa > 0:
        raise InputError(f"kappa must be positive (1/8 is free and massless), got {kappa}")
    return 1 / (2 * kappa) - 4


def kappa_of_mass(mass: float) -> float:
    """Hopping parameter kappa = 1 / (2 m + 8); InputError unless m > -4."""
    if not mass > -4:
        raise InputError(f"the mass of a Wilson operator must be larger than -4, got {mass}")
    return 1 / (2 * mass + 8)


@dataclass(frozen=True)
class WilsonDslash(HoppingTerm):
    """D of one set of links in one precision; fields on one parity are ``[site, 12, N]``.

    dtype: complex64 or complex128. packing: how links are kept on a GPU.
    """

    links: WilsonLinks
    dtype: Any = np.complex128
    packing: Packing = WIDE

    name = "a Wilson operator"

    @property
    def xp(self) -> ModuleType:
        return array_module(self.links.links)

    @property
    def lattice(self) -> Lattice:
        return self.links.lattice

    def apply_to(
        self, parity: int, x: SpinorField, out: SpinorField | None = None, sign: int = 1, **terms: Any
    ) -> SpinorField:
        """``out = a C' diagonal + b C D x`` on `parity`, x on the other; D^dag for sign = -1.

        terms: diagonal, a, b, clover of `stages.lqcd.kernels.wilson_dslash`.
        """
        out = numbers_like(x) if out is None else out
        return wilson_dslash.wilson_dslash(self.packed[parity], x, out, sign=sign, **terms)

    def _packed_into(self, parity: int) -> wilson_dslash.PackedLinks:
        links = self.links.links, self.links.anisotropy.weights, self.lattice, parity
        form = self.packing.wilson("double" if self.dtype == np.complex128 else "single")
        return wilson_dslash.pack_fields(*links, self.dtype, form)


@dataclass(frozen=True)
class WilsonOperator(MadeOf):
    """M on the full lattice, ``[parity, site, 12, N]``.

    mass: m of M, that of every flavour; any real number (light quarks have m < 0). mu: the twisted mass, of
    either sign, or 0.
    """

    dslash: WilsonDslash
    mass: float
    mu: float = 0.0
    _precisions: dict[np.dtype, WilsonDslash] = field(default_factory=dict, repr=False, compare=False)
    _matrices: dict[tuple[float, float, np.dtype, bool, int], PackedClover] = field(
        default_factory=dict, repr=False, compare=False
    )

    hermitian = False
    positive_definite = False

    @property
    def links(self) -> WilsonLinks:
        return self.dslash.links

    @property
    def lattice(self) -> Lattice:
        return self.dslash.lattice

    @property
    def shape(self) -> tuple[int, ...]:
        return (2, self.lattice.half_volume, COMPONENTS)

    @property
    def constant(self) -> float:
        """The constant m + sum_mu w_mu of A."""
        return self.mass + sum(self.links.anisotropy.weights)

    @property
    def has_matrices(self) -> bool:
        """Whether A is a matrix on each site, not a constant."""
        return self.links.csw is not None or self.mu != 0

    @property
    def twist(self) -> float:
        """What multiplies i gamma5 in A: -mu."""
        return -self.mu

    def with_twist(self, mu: float) -> WilsonOperator:
        """This operator with another twisted mass, of the same links and matrices."""
        return replace(self, mu=mu)

    @property
    def other_flavour(self) -> WilsonOperator:
        """M(-mu), the other quark of a twisted doublet."""
        return self.with_twist(-self.mu)

    def laid_out(self, packing: Packing) -> WilsonOperator:
        """This operator with links packed so, for as long as the result is kept; itself if they are."""
        if self.dslash.packing == packing:
            return self
        return replace(self, dslash=replace(self.dslash, packing=packing), _precisions={})

    def apply(self, x: Array, out: Array | None = None) -> Array:
        out = field_like(x) if out is None else out
        for parity in (EVEN, ODD):
            self.apply_to(parity, x, out[parity])
        return out

    def apply_to(self, parity: int, x: Array, out: Array) -> Array:
        """M x on the sites of a parity, ``[site, 12, N]``; returns `out`."""
        local = {"diagonal": x[parity], **self.local(parity)}
        return self.dslash.apply_to(parity, x[1 - parity], out, b=-0.5, **local)

    def local(self, parity: int, sign: int = 1) -> dict[str, Any]:
        """The terms of the dslash that add A times the diagonal, its adjoint for sign = -1."""
        if not self.has_matrices:
            return {"a": self.constant}
        return {"a": 1.0, "clover": ("diagonal", self.clover(parity, sign))}

    def clover(self, parity: int, sign: int = 1) -> PackedClover:
        """A on the sites of `parity`, packed, or its adjoint; only where A `has_matrices`.

        Raises InputError.
        """
        return self._local_matrices(False, parity, sign)

    def clover_inverse(self, parity: int, sign: int = 1) -> PackedClover:
        """A^-1 on the sites of `parity`, packed; its adjoint for sign = -1; only where A `has_matrices`.

        Raises InputError where A is singular.
        """
        return self._local_matrices(True, parity, sign)

    def _local_matrices(self, inverted: bool, parity: int, sign: int) -> PackedClover:
        """A or its inverse; those of -mu are the adjoints of those of mu."""
        matrices = self._kept_matrices(self.dtype, inverted, parity, abs(self.mu))
        return clover.adjoint(matrices) if sign * self.twist < 0 else matrices

    def _kept_matrices(self, dtype: np.dtype, inverted: bool, parity: int, mu: float) -> PackedClover:
        """Made once for this operator, its other precisions and its other twisted masses."""
        key = (self.mass, mu, dtype, inverted, parity)
        if key not in self._matrices:
            self._matrices[key] = self._new_matrices(dtype, inverted, parity, mu)
        return self._matrices[key]

    def _new_matrices(self, dtype: np.dtype, inverted: bool, parity: int, mu: float) -> PackedClover:
        if dtype != np.complex128:
            return clover.astype(self._kept_matrices(np.dtype(complex), inverted, parity, mu), dtype)
        if mu:
            return clover.twisted(self._kept_matrices(dtype, False, parity, 0.0), mu, inverted)
        if not inverted:
            without = self.links.csw is None
            blocks = zeros_like(self.links.links, (self.lattice.half_volume, 2, 6, 6)) if without else None
            return clover.pack(self.links.clover(parity) if blocks is None else blocks, self.constant)
        try:
            return clover.inverse(self._kept_matrices(dtype, False, parity, 0.0))
        except InputError as error:
            raise InputError(
                f"the clover matrix A = m + 4 + C is singular for m = {self.mass}: change mass or csw"
            ) from error

    def pack(self) -> None:
        """Lay out for the kernels what even-odd solves apply now, not when it is first applied."""
        if self.has_matrices:
            for parity in (EVEN, ODD):
                self.clover_inverse(parity)
        self.dslash.packed  # noqa: B018 - made and kept

    def astype(self, dtype: DTypeLike) -> WilsonOperator:
        """This operator in another precision, whose links this one keeps: they are packed once."""
        dtype = np.dtype(dtype)
        if dtype == self.dtype:
            return self
        if dtype not in self._precisions:
            self._precisions[dtype] = replace(self.dslash, dtype=dtype)
        return replace(self, dslash=self._precisions[dtype], _precisions={})  # the matrices are shared
