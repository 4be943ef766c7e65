"""Wilson and Wilson-clover operators on blocks of right-hand sides.

    M = A - D / 2,   A = m + sum_mu w_mu + C,
    D psi(x) = sum_mu w_mu [ (1 - gamma_mu) U_mu(x) psi(x+mu) + (1 + gamma_mu) U_mu(x-mu)^dag psi(x-mu) ]

as in Chroma, in the DeGrand-Rossi basis (`stages.lqcd.kernels.gamma`); weights w and clover term C come with
the links (`stages.lqcd.gauge.wilson_links`). gamma5 M gamma5 = M^dag. kappa = 1 / (2 m + 8), M_kappa = 2
kappa M.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from stages.errors import InputError
from stages.lqcd.dirac.doubled_links import doubled_links
from stages.lqcd.gauge.wilson_links import WilsonLinks
from stages.lqcd.kernels import clover, matrix_inverse, staple, wilson_dslash
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.lattice.sizes import COMPLEX, MATRIX, links_bytes

DSLASH_FLOPS, CLOVER_FLOPS = 1320, 504
"""Of D and of a product with A or A^-1, per site and right-hand side (QUDA's count)."""

CLOVER_BYTES = 72 * COMPLEX
"""Of the clover term of a site: two Hermitian 6 x 6 matrices."""


def operator_bytes(lattice: Lattice, precision: str) -> int:
    """Bytes of an operator as it stays: links, packed links, clover term, A and its inverse.

    precision: of the solves, 'double' or 'double-single'.
    """
    return sum(operator_terms(lattice, precision).values())


def operator_terms(lattice: Lattice, precision: str) -> dict[str, int]:
    """`operator_bytes` by what they hold."""
    links, clover = 8 * MATRIX * lattice.volume, CLOVER_BYTES * lattice.volume
    halves = {"double": 2, "double-single": 3}[precision]  # in double, and perhaps in single, too
    return {
        "links: fields": links_bytes(lattice),
        "links: double": links,
        "links: single": links * (halves - 2) // 2,
        "clover term": clover + clover * halves,
    }


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
class WilsonDslash:
    """D of one set of links in one precision; fields on one parity are ``[site, 12, N]``.

    dtype: complex64 or complex128.
    """

    links: WilsonLinks
    dtype: Any = np.complex128

    def __post_init__(self) -> None:
        dtype = np.dtype(self.dtype)
        if dtype not in (np.complex64, np.complex128):
            raise InputError(f"a Wilson operator is complex64 or complex128, got {dtype}")
        object.__setattr__(self, "dtype", dtype)

    @property
    def xp(self) -> ModuleType:
        return array_module(self.links.links)

    @property
    def lattice(self) -> Lattice:
        return self.links.lattice

    def apply_to(self, parity: int, x: Array, out: Array | None = None, sign: int = 1, **terms: Any) -> Array:
        """``out = a C' diagonal + b C D x`` on `parity`, x on the other; D^dag for sign = -1.

        terms: diagonal, a, b, hop_clover, diagonal_clover of `stages.lqcd.kernels.wilson_dslash`.
        """
        out = field_like(x) if out is None else out
        return wilson_dslash.wilson_dslash(self.packed[parity], x, out, sign=sign, **terms)

    @cached_property
    def packed(self) -> tuple[Any, Any]:
        """Packed links into the even and into the odd sites."""
        weighted = field_like(self.links.links)
        for mu, weight in enumerate(self.links.anisotropy.weights):
            staple.scaled(weight, self.links.links[mu], weighted[mu])
        even, odd = (
            wilson_dslash.pack(doubled_links(weighted, None, self.lattice, p, self.dtype), self.lattice, p)
            for p in (EVEN, ODD)
        )
        return even, odd


@dataclass(frozen=True)
class WilsonOperator:
    """M on the full lattice, ``[parity, site, 12, N]``; `sign` = -1 gives its adjoint, gamma5 M gamma5.

    mass: m of M, that of every flavour; any real number (light quarks have m < 0).
    """

    dslash: WilsonDslash
    mass: float
    sign: int = 1
    _precisions: dict[np.dtype, WilsonOperator] = field(default_factory=dict, repr=False, compare=False)

    hermitian = False
    positive_definite = False

    @property
    def links(self) -> WilsonLinks:
        return self.dslash.links

    @property
    def xp(self) -> ModuleType:
        return self.dslash.xp

    @property
    def lattice(self) -> Lattice:
        return self.dslash.lattice

    @property
    def shape(self) -> tuple[int, ...]:
        return (2, self.lattice.half_volume, COMPONENTS)

    @property
    def dtype(self) -> np.dtype:
        return self.dslash.dtype

    @property
    def constant(self) -> float:
        """The constant m + sum_mu w_mu: A where there is no clover term."""
        return self.mass + sum(self.links.anisotropy.weights)

    @property
    def adjoint(self) -> WilsonOperator:
        return replace(self, sign=-self.sign)

    def apply(self, x: Array, out: Array | None = None) -> Array:
        out = field_like(x) if out is None else out
        for parity in (EVEN, ODD):
            local = {"diagonal": x[parity], **self.local(parity)}
            self.dslash.apply_to(parity, x[1 - parity], out[parity], self.sign, b=-0.5, **local)
        return out

    def local(self, parity: int) -> dict[str, Any]:
        """The terms of the dslash that add A times the diagonal."""
        if self.links.clover is None:
            return {"a": self.constant}
        return {"a": 1.0, "diagonal_clover": self.clover[parity]}

    @property
    def _local_blocks(self) -> Array:
        """A, ``[parity, site, chirality, 6, 6]``. Raises InputError where there is no clover term."""
        if self.links.clover is None:
            raise InputError("this Wilson operator has no clover term: A is the number `constant`")
        return clover.plus_constant(self.links.clover, self.constant)

    @cached_property
    def clover(self) -> tuple[Any, Any]:
        """A on the even and on the odd sites, packed; only with a clover term."""
        return self._packed(self._local_blocks)

    @cached_property
    def clover_inverse(self) -> tuple[Any, Any]:
        """A^-1 on the even and on the odd sites, packed; only with a clover term.

        Raises InputError where A is singular.
        """
        inverse = matrix_inverse.hermitian_inverse(self._local_blocks)
        if not matrix_inverse.is_finite(inverse):
            raise InputError(
                f"the clover matrix A = m + 4 + C is singular for m = {self.mass}: change mass or csw"
            )
        return self._packed(inverse)

    def _packed(self, blocks: Array) -> tuple[Any, Any]:
        pack = clover.pack
        even, odd = (pack(blocks[p].astype(self.dtype)) for p in (EVEN, ODD))
        return even, odd

    def pack(self) -> None:
        """Lay links and clover matrices out for the kernels now, not when M is first applied."""
        self.dslash.packed  # noqa: B018 - made and kept
        if self.links.clover is not None:
            self.clover, self.clover_inverse  # noqa: B018

    def astype(self, dtype: Any) -> WilsonOperator:
        """This operator in another precision, which this one keeps: its matrices are packed once."""
        dtype = np.dtype(dtype)
        if dtype == self.dtype:
            return self
        if dtype not in self._precisions:
            dslash = replace(self.dslash, dtype=dtype)
            self._precisions[dtype] = replace(self, dslash=dslash, _precisions={})
        converted = self._precisions[dtype]  # shared with the adjoint of self
        return converted if converted.sign == self.sign else converted.adjoint
