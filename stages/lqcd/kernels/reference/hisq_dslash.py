"""The staggered dslash: sum over directions of link times neighbour."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.lqcd.kernels.directions import neighbour_table
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.half_field import HalfField, check_half_dslash, halved, whole
from stages.lqcd.kernels.operands import check_dslash, check_links
from stages.lqcd.lattice.geometry import Lattice


@dataclass(frozen=True)
class PackedLinks:
    """Direction-doubled, pre-daggered, signed links into the sites of `parity`.

    `links` is ``[site, direction, 3, 3]``, `neighbours` int32 ``[site, direction]`` in the opposite parity;
    the order of the directions is that of `stages.lqcd.kernels.directions`.
    """

    lattice: Lattice
    parity: int
    directions: int
    dtype: np.dtype
    links: Array
    neighbours: Array


def pack(links: Array, lattice: Lattice, parity: int) -> PackedLinks:
    """Complex links ``[site, 16, 8 or 6, 3, 3]`` in this backend's layout; InputError on a wrong shape."""
    check_links(links, lattice, parity)
    directions = links.shape[1]
    neighbours = array_module(links).asarray(neighbour_table(lattice, parity, directions))
    return PackedLinks(lattice, parity, directions, np.dtype(links.dtype), links, neighbours)


def to_half(field: Array, out: HalfField | None = None) -> HalfField:
    """complex64 ``[site, 3, N]`` in 16 bits, a scale per site and right-hand side; InputError for others."""
    return halved(field, 3, out)


def from_half(field: HalfField, out: Array | None = None) -> Array:
    """The complex64 ``[site, 3, N]`` that a HalfField holds."""
    return whole(field, out)


def hisq_dslash(
    packed: PackedLinks,
    x: Array | HalfField,
    out: Any,
    *,
    diagonal: Array | None = None,
    a: float = 0.0,
    b: float = 1.0,
    dots: Array | None = None,
) -> Any:
    """``out = a diagonal + b sum_d links[s, d] x[neighbour(s, d)]``; returns `out`.

    x ``[site, 3, N]`` lives on the opposite parity, out and diagonal on ``packed.parity``; all of one dtype.
    `out` may be `diagonal`, never `x`; otherwise what it held is not read. If given, dots, float64 ``[N]``,
    receives Re conj(diagonal) . out of each right-hand side, added in double over sites. Raises InputError.

    With complex64 links x may be a HalfField; out is one then, without a diagonal, or complex64 as it is.
    """
    if isinstance(x, HalfField):
        return through_single(hisq_dslash, packed, x, out, diagonal, a, b, dots)
    check_dslash(packed, x, out, diagonal, dots)
    total = sum(packed.links[:, d] @ x[packed.neighbours[:, d]] for d in range(packed.directions))
    result = b * total if diagonal is None else a * diagonal + b * total
    if dots is not None and diagonal is not None:
        dots[...] = (diagonal.conj() * result.astype(complex)).sum(axis=(0, 1)).real
    out[...] = result
    return out


def through_single(
    dslash: Callable[..., Array],
    packed: Any,
    x: HalfField,
    out: Any,
    diagonal: Array | None,
    a: float,
    b: float,
    dots: Array | None,
) -> Any:
    """`dslash`, a package's `hisq_dslash` of complex64 fields, applied to a field of 16 bits.

    A processor gains little from 16 bits; results should be those of the GPU.
    """
    check_half_dslash(packed, x, out, diagonal, dots)
    values = from_half(x)
    if not isinstance(out, HalfField):
        return dslash(packed, values, out, diagonal=diagonal, a=a, b=b, dots=dots)
    return to_half(dslash(packed, values, array_module(values).empty_like(values), b=b), out)
