"""The staggered dslash: sum over directions of link times neighbour."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import numpy as np

from stages.errors import InputError
from stages.lqcd.kernels.dispatch import Array, array_module, kernel
from stages.lqcd.kernels.half_field import HalfField, check_half_fields
from stages.lqcd.kernels.operands import check_array, check_links
from stages.lqcd.lattice.geometry import Lattice

COLOURS = 3

Field = TypeVar("Field", Array, HalfField)


class PackedLinks(Protocol):
    """Direction-doubled, pre-daggered, signed links into the sites of `parity`, laid out for the kernels.

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


def pack(links: Array, lattice: Lattice, parity: int) -> PackedLinks:
    """Complex links ``[site, 16, 8 or 6, 3, 3]`` laid out for the kernels; InputError on a wrong shape."""
    check_links(links, lattice, parity)
    return kernel("hisq_dslash.pack", type(links))(links, lattice, parity)


def hisq_dslash(
    packed: PackedLinks,
    x: Array | HalfField,
    out: Field,
    *,
    diagonal: Array | None = None,
    a: float = 0.0,
    b: float = 1.0,
    dots: Array | None = None,
) -> Field:
    """``out = a diagonal + b sum_d links[s, d] x[neighbour(s, d)]``; returns `out`.

    x ``[site, 3, N]`` lives on the opposite parity, out and diagonal on ``packed.parity``; all of one dtype,
    N up to 64 on a GPU. `out` may be `diagonal`, never `x`; otherwise what it held is not read. If given,
    dots, float64 ``[N]``, receives Re conj(diagonal) . out of each right-hand side, added in double over
    sites in a fixed order. Raises InputError.

    With complex64 links x may be a HalfField; out is one then, without a diagonal, or complex64 as it is.
    """
    if isinstance(x, HalfField):
        check_half_fields(packed, x, out, diagonal, COLOURS)
    else:
        _check_fields(packed, x, out, diagonal)
    if dots is not None:
        check_array("dots", dots, x.shape[2:], np.dtype(np.float64))
        if diagonal is None:
            raise InputError("dots are Re conj(diagonal) out: give a diagonal")
    start = kernel("hisq_dslash.hisq_dslash", type(packed))
    return start(packed, x, out, diagonal=diagonal, a=a, b=b, dots=dots)


def _check_fields(packed: PackedLinks, x: Array, out: Any, diagonal: Array | None) -> None:
    """Raise InputError unless x, out, diagonal are ``[site, 3, N]`` of the links' dtype and x is not out."""
    if x.ndim != 3:
        raise InputError(f"x must have shape (sites, 3, right-hand sides), got {x.shape}")
    shape = (packed.lattice.half_volume, COLOURS, x.shape[2])
    check_array("x", x, shape, packed.dtype)
    check_array("out", out, shape, packed.dtype)
    if diagonal is not None:
        check_array("diagonal", diagonal, shape, packed.dtype)
    if array_module(x).may_share_memory(out, x):
        raise InputError("out of the dslash must not be its input x: give another array")
