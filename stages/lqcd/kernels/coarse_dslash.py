"""Products with the matrices of a coarse grid operator: at each site a sum over its neighbours."""

from __future__ import annotations

from typing import Protocol

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
