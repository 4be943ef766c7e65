"""The staggered dslash: sum over directions of link times neighbour."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, array_module, kernel
from stages.lqcd.kernels.link_forms import StaggeredForm
from stages.lqcd.kernels.operands import check_array, check_product
from stages.lqcd.kernels.short_numbers import ShortField, VectorField, check_short_field
from stages.lqcd.lattice.geometry import Lattice

COLOURS = 3


class PackedLinks(Protocol):
    """Links into the sites of `parity`, forward and backward, laid out for the kernels.

    The order of the directions is that of `stages.lqcd.kernels.directions`.
    """

    @property
    def lattice(self) -> Lattice: ...

    @property
    def parity(self) -> int: ...

    @property
    def directions(self) -> int: ...

    @property
    def dtype(self) -> np.dtype: ...

    @property
    def short(self) -> bool:
        """True where fields of products are short (`stages.lqcd.kernels.short_numbers`)."""


def pack_spatial(links: Array, lattice: Lattice, parity: int, dtype: DTypeLike) -> PackedLinks:
    """Links U_j(x) and U_j(x - j)^dag of j = x, y, z, without signs, laid out in a precision.

    links: complex ``[mu, parity, site, 3, 3]``. Raises InputError.
    """
    check_array("links", links, (4, 2, lattice.half_volume, 3, 3), links.dtype)
    return kernel("hisq_dslash.pack_spatial", type(links))(links, lattice, parity, np.dtype(dtype))


def pack_fields(
    one_hop: Array,
    three_hops: Array | None,
    lattice: Lattice,
    parity: int,
    dtype: DTypeLike,
    form: StaggeredForm = StaggeredForm.MATRICES,
) -> PackedLinks:
    """Links of fields, complex128 ``[mu, parity, site, 3, 3]``, doubled and laid out in a precision.

    X_mu(x), -X_mu(x-mu)^dag, N_mu(x), -N_mu(x-3mu)^dag for the sites x of `parity` and every mu. three_hops
    N: None where the operator has no such term. form: of links on a GPU (`Packing` chooses it); MATRICES
    where it asks for fewer numbers and long links are not one real number times U(3) matrices. SHORT is for
    complex64; with IN_FIELDS, for complex128, the kernel reads links where they lie, and results have the
    same bits. Raises InputError.
    """
    for name, links in (("one_hop", one_hop), ("three_hops", three_hops)):
        if links is not None:
            check_array(name, links, (4, 2, lattice.half_volume, 3, 3), np.dtype(complex))
    start = kernel("hisq_dslash.pack_fields", type(one_hop))
    return start(one_hop, three_hops, lattice, parity, np.dtype(dtype), form)


def hisq_dslash(
    packed: PackedLinks,
    x: VectorField,
    out: VectorField,
    *,
    diagonal: VectorField | None = None,
    a: float = 0.0,
    b: float = 1.0,
    dots: Array | None = None,
) -> VectorField:
    """``out = a diagonal + b sum_d links[s, d] x[neighbour(s, d)]``; returns `out`.

    x ``[site, 3, N]`` lives on the opposite parity, out and diagonal on ``packed.parity``; all of one dtype,
    N up to 64 on a GPU. `out` may be `diagonal`, never `x`; otherwise what it held is not read. If given,
    dots, float64 ``[N]``, receives Re conj(diagonal) . out of each right-hand side, added in double over
    sites in a fixed order. Raises InputError.

    With links packed for short fields x and the diagonal are ShortFields of 16 bits, out one of 16 or 20.
    """
    if packed.short or isinstance(x, ShortField) or isinstance(out, ShortField):
        _check_short_fields(packed, x, out, diagonal)
    else:
        check_product(x, out, diagonal, (packed.lattice.half_volume, COLOURS), packed.dtype)
    if dots is not None:
        check_array("dots", dots, x.shape[2:], np.dtype(np.float64))
        if diagonal is None:
            raise InputError("dots are Re conj(diagonal) out: give a diagonal")
    start = kernel("hisq_dslash.hisq_dslash", type(packed))
    return start(packed, x, out, diagonal=diagonal, a=a, b=b, dots=dots)


def _check_short_fields(packed: PackedLinks, x: Any, out: Any, diagonal: Any) -> None:
    """Raise InputError unless a product takes x and diagonal of 16 bits to `out`, another short field."""
    if packed.dtype != np.complex64:
        raise InputError(f"a ShortField needs complex64 links, got {packed.dtype}")
    if len(x.shape) != 3:
        raise InputError(f"x must have shape (sites, 3, right-hand sides), got {x.shape}")
    shape = (packed.lattice.half_volume, COLOURS, x.shape[2])
    for name, field in {"x": x, **({} if diagonal is None else {"diagonal": diagonal})}.items():
        check_short_field(name, field, shape, 16)
    check_short_field("out", out, shape, getattr(out, "bits", 16))
    if array_module(x.words).may_share_memory(out.words, x.words):
        raise InputError("out of the dslash must not be its input x: give another field")
    if not packed.short:
        raise InputError("a ShortField needs links packed for it: give pack_fields StaggeredForm.SHORT")
