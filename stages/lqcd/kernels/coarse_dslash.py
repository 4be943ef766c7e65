"""The matrices of a coarse grid operator: products with them, those against the directions, and inverses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, array_module, kernel
from stages.lqcd.kernels.operands import check_array


class PackedCoarseLinks(Protocol):
    """Matrices laid out for the kernels, and int32 neighbours ``[site, direction]`` of output sites.

    input_sites: how many sites an input has at least.
    """

    @property
    def neighbours(self) -> Array: ...

    @property
    def input_sites(self) -> int: ...

    @property
    def components(self) -> int: ...

    @property
    def dtype(self) -> np.dtype: ...


def pack(links: Array, neighbours: Array) -> PackedCoarseLinks:
    """Coarse links laid out for the kernels.

    From complex matrices ``[site, direction, n, n]`` and int32 neighbours ``[site, direction]``, any number
    of directions; on a GPU they are complex64. Neighbours may lie on the host: of others it waits for the
    largest. Raises InputError.
    """
    _check_links(links, neighbours)
    return kernel("coarse_dslash.pack", type(links))(links, neighbours)


def pack_half(links: Array, neighbours: Array) -> PackedCoarseLinks:
    """Coarse links that a GPU rounds to 11 significant bits, as it does fields in products with them.

    On a CPU they are those of `pack`. For cycles, whose solutions are rough. Raises InputError.
    """
    _check_links(links, neighbours)
    return kernel("coarse_dslash.pack_half", type(links))(links, neighbours)


def coarse_dslash(
    packed: PackedCoarseLinks,
    x: Array,
    out: Array,
    *,
    diagonal: Array | None = None,
    a: float = 0.0,
    b: float = 1.0,
) -> Array:
    """``out[s] = a diagonal[s] + b sum_d links[s, d] x[neighbours[s, d]]``; returns `out`.

    x ``[input site, n, N]``; out, diagonal ``[site, n, N]``; all of one dtype. `out` may be `diagonal`, never
    `x`; otherwise what it held is not read. Raises InputError.
    """
    _check_fields(packed, x, out, diagonal)
    return kernel("coarse_dslash.coarse_dslash", type(packed))(packed, x, out, diagonal=diagonal, a=a, b=b)


def add_backward(diagonal: Array, inside: Sequence[Array], links: Array, behind: Array) -> None:
    """``links[s, 2 mu + 1] = mirrored links[behind[s, mu], 2 mu]``, the mirrored L being gamma5 L^H gamma5.

    And ``diagonal += inside[mu] + mirrored inside[mu]`` for each mu, what hops inside of aggregates add to
    the local matrices. diagonal, inside ``[site, 2 k, 2 k]``; links ``[site, 8, 2 k, 2 k]``; behind: the
    neighbour of every site in each direction -mu, int32 ``[site, 4]``. gamma5 is +1 on the first k components
    and -1 on the others. Raises InputError.
    """
    sites, n = diagonal.shape[0], diagonal.shape[-1]
    for name, array in (("diagonal", diagonal), *((f"inside[{mu}]", inside[mu]) for mu in range(4))):
        check_array(name, array, (sites, n, n), links.dtype)
    check_array("links", links, (sites, 8, n, n), links.dtype)
    check_array("behind", behind, (sites, 4), np.dtype(np.int32))
    kernel("coarse_dslash.add_backward", type(links))(diagonal, inside, links, behind)


def inverse(matrices: Array) -> Array:
    """M^-1, a new array. Raises InputError for what is no array of square matrices."""
    _check_square(matrices)
    return kernel("coarse_dslash.inverse", type(matrices))(matrices)


def is_finite(matrices: Array) -> Any:
    """True if no element is infinite or NaN: an answer for which `bool` waits where it is no bool already."""
    return kernel("coarse_dslash.is_finite", type(matrices))(matrices)


def _check_links(links: Array, neighbours: Array) -> None:
    """Raise InputError unless links are complex ``[site, D, n, n]`` and neighbours int32 ``[site, D]``."""
    if links.dtype not in (np.complex64, np.complex128) or not links.flags.c_contiguous:
        raise InputError(
            f"coarse links must be C-contiguous and complex64 or complex128, got {links.dtype} with strides "
            f"{links.strides}"
        )
    if links.ndim != 4 or links.shape[2] != links.shape[3]:
        raise InputError(f"coarse links have shape (sites, directions, n, n), got {links.shape}")
    check_array("neighbours", neighbours, links.shape[:2], np.dtype(np.int32))


def _check_fields(packed: PackedCoarseLinks, x: Array, out: Array, diagonal: Array | None) -> None:
    """Raise InputError unless x, out, diagonal are ``[site, n, N]`` of the links' dtype and x is not out."""
    if x.ndim != 3:
        raise InputError(f"x must have shape (sites, components, right-hand sides), got {x.shape}")
    check_array("x", x, (len(x), packed.components, x.shape[2]), packed.dtype)
    if len(x) < packed.input_sites:
        raise InputError(f"x must have at least {packed.input_sites} sites, as neighbours say, got {len(x)}")
    shape = (len(packed.neighbours), packed.components, x.shape[2])
    check_array("out", out, shape, packed.dtype)
    if diagonal is not None:
        check_array("diagonal", diagonal, shape, packed.dtype)
    if array_module(x).may_share_memory(out, x):
        raise InputError("out of the dslash must not be its input x: give another array")


def _check_square(matrices: Array) -> None:
    if matrices.ndim < 2 or matrices.shape[-1] != matrices.shape[-2] or matrices.dtype.kind != "c":
        raise InputError(
            f"inverses are of complex matrices [..., n, n], got {matrices.dtype} {matrices.shape}"
        )
