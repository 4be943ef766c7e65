"""The Wilson dslash: sum over directions of spin projector times link times neighbour."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from stages.base.errors import InputError
from stages.lqcd.kernels.clover import PackedClover
from stages.lqcd.kernels.dispatch import Array, array_module, kernel
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.kernels.link_forms import WilsonForm
from stages.lqcd.kernels.operands import check_array, check_product
from stages.lqcd.kernels.short_numbers import HalfField, SpinorField, Spinors, check_half_field
from stages.lqcd.lattice.geometry import Lattice

Weights: TypeAlias = tuple[float, float, float, float]

CloverTerm: TypeAlias = tuple[Literal["hop", "diagonal"], PackedClover]
"""What the clover matrices of a product multiply, the sum over hops or the diagonal, and these."""


class PackedLinks(Protocol):
    """Direction-doubled links into the sites of `parity`, laid out for the kernels.

    Directions d = 2 mu + hop: hop 0 carries U_mu(x), hop 1 carries -U_mu(x-mu)^dag.
    """

    @property
    def lattice(self) -> Lattice: ...

    @property
    def parity(self) -> int: ...

    @property
    def dtype(self) -> np.dtype: ...


def pack_fields(
    links: Array,
    weights: Weights,
    lattice: Lattice,
    parity: int,
    dtype: DTypeLike,
    form: WilsonForm = WilsonForm.MATRICES,
) -> PackedLinks:
    """Links of fields, complex128 ``[mu, parity, site, 3, 3]``, weighted, doubled, laid out in a precision.

    weights: of the hops along each mu. form: of links on a GPU (`Packing` chooses it); MATRICES where it
    asks for two rows and links are not in SU(3). With IN_FIELDS, for complex128, the kernel reads and
    weights links where they lie; results have the bits of MATRICES. Raises InputError.
    """
    check_array("links", links, (4, 2, lattice.half_volume, 3, 3), np.dtype(complex))
    start = kernel("wilson_dslash.pack_fields", type(links))
    return start(links, weights, lattice, parity, np.dtype(dtype), form)


def wilson_dslash(
    packed: PackedLinks,
    x: Spinors,
    out: SpinorField,
    *,
    sign: int = 1,
    diagonal: Spinors | None = None,
    a: float = 0.0,
    b: float = 1.0,
    clover: CloverTerm | None = None,
) -> SpinorField:
    """``out = a C' diagonal + b C D x``; returns `out`.

        D x(s) = sum_mu [ (1 - sign gamma_mu) U_mu(s) x(s+mu) + (1 + sign gamma_mu) U_mu(s-mu)^dag x(s-mu) ]

    sign: 1, or -1 for the adjoint. clover: C for "hop" or C' for "diagonal"; what is not given is one. x
    ``[site, 12, N]``, N up to 64 on a GPU, lives on the opposite parity, out and diagonal on
    ``packed.parity``; all of one dtype. `out` may be `diagonal`, never `x`; otherwise what it held is not
    read. Raises InputError.

    With complex64 links x may be a HalfField; out and the diagonal both are then, or both are complex64.
    """
    if isinstance(x, HalfField) or isinstance(out, HalfField) or isinstance(diagonal, HalfField):
        _check_half_fields(packed, x, out, diagonal)
    else:
        check_product(x, out, diagonal, (packed.lattice.half_volume, COMPONENTS), packed.dtype)
    check_terms(packed, diagonal, sign, clover)
    start = kernel("wilson_dslash.wilson_dslash", type(packed))
    return start(packed, x, out, sign=sign, diagonal=diagonal, a=a, b=b, clover=clover)


def wilson_hop(packed: PackedLinks, direction: int, x: Array, out: Array, *, sign: int = 1) -> Array:
    """The term of D x that comes from one direction d = 2 mu + hop; arguments as for `wilson_dslash`.

    Links are packed. Raises InputError.
    """
    check_terms(packed, None, sign, None)
    check_product(x, out, None, (packed.lattice.half_volume, COMPONENTS), packed.dtype)
    return kernel("wilson_dslash.wilson_hop", type(packed))(packed, direction, x, out, sign=sign)


def _check_half_fields(packed: PackedLinks, x: Any, out: Any, diagonal: Any) -> None:
    """Raise InputError unless out and diagonal both are HalfFields, or both complex64, and x is not out."""
    if packed.dtype != np.complex64:
        raise InputError(f"a HalfField needs complex64 links, got {packed.dtype}")
    shape = (packed.lattice.half_volume, COMPONENTS, x.shape[2])
    check_half_field("x", x, shape)
    for name, field in (("out", out), ("diagonal", diagonal)):
        if isinstance(out, HalfField) and (name == "out" or field is not None):
            check_half_field(name, field, shape)
        elif field is not None:
            check_array(name, field, shape, np.dtype(np.complex64))
    if isinstance(out, HalfField) and array_module(x.codes).may_share_memory(out.codes, x.codes):
        raise InputError("out of the dslash must not be its input x: give another field")


def check_terms(packed: PackedLinks, diagonal: Spinors | None, sign: int, clover: CloverTerm | None) -> None:
    """Raise InputError unless clover matrices fit the links, and those of the diagonal have one."""
    if sign not in (1, -1):
        raise InputError(f"sign must be 1, or -1 for the adjoint, got {sign}")
    if clover is None:
        return
    place, matrices = clover
    if place == "diagonal" and diagonal is None:
        raise InputError("clover matrices of the diagonal multiply it: give one")
    sites = packed.lattice.half_volume
    if (matrices.sites, matrices.dtype) != (sites, packed.dtype):
        raise InputError(
            f"clover matrices must be {packed.dtype} on {sites} sites, "
            f"got {matrices.dtype} on {matrices.sites}"
        )
