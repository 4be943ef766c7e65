"""Checks of the arrays handed to a kernel, common to all packages: compiled kernels trust them blindly."""

from __future__ import annotations

from math import prod

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, array_module, is_contiguous
from stages.lqcd.kernels.gamma import COLOURS
from stages.lqcd.lattice.geometry import DIRECTIONS, Lattice


def check_array(name: str, array: Array, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise InputError unless `array` has this shape and dtype and is C-contiguous."""
    if array.shape != shape or array.dtype != dtype or not is_contiguous(array):
        order = "" if is_contiguous(array) else " that is not C-contiguous (use ascontiguousarray)"
        actual = f"{array.dtype} {array.shape}{order}"
        raise InputError(f"{name} must be a C-contiguous {dtype} array of shape {shape}, got {actual}")


def check_product(
    x: Array, out: Array, diagonal: Array | None, shape: tuple[int, int], dtype: np.dtype
) -> None:
    """Raise InputError unless x, out, diagonal are ``[*shape, N]`` of this dtype and x is not out."""
    if x.ndim != 3:
        raise InputError(f"x must have shape (sites, {shape[1]}, right-hand sides), got {x.shape}")
    for name, array in (("x", x), ("out", out), ("diagonal", diagonal)):
        if array is not None:
            check_array(name, array, (*shape, x.shape[2]), dtype)
    if array_module(x).may_share_memory(out, x):
        raise InputError("out of the dslash must not be its input x: give another array")


def check_gauge(links: Array, lattice: Lattice, out: Array, *, in_place: bool = False) -> None:
    """Raise InputError unless both are complex ``[mu, parity, site, 3, 3]`` of one dtype, and two arrays."""
    if links.dtype not in (np.complex64, np.complex128):
        raise InputError(f"links must be complex64 or complex128, got {links.dtype}")
    shape = (4, 2, lattice.half_volume, 3, 3)
    for name, array in (("links", links), ("out", out)):
        check_array(name, array, shape, links.dtype)
    if out is links and not in_place:
        raise InputError("out must be another array than the links: their neighbours are read")


def check_finite_links(links: Array, lattice: Lattice) -> None:
    """Raise InputError, naming the first, if an element of links ``[mu, parity, site, ...]`` is not finite.

    One pass over the links, without temporaries: elements of SU(3) matrices cannot overflow in a sum.
    """
    xp = array_module(links)
    if xp.isfinite(links.sum()):
        return
    damaged = xp.argwhere(~xp.isfinite(links).all(axis=(-2, -1)))
    mu, parity, site = (int(number) for number in damaged[0])
    raise InputError(
        f"{len(damaged)} links of the configuration are not finite, the first in direction {DIRECTIONS[mu]} "
        f"at (x, y, z, t) = {tuple(lattice.coordinates(parity)[site].tolist())}: "
        "start from an undamaged gauge field"
    )


def check_blocks(**blocks: Array) -> None:
    """Raise InputError unless all are C-contiguous complex ``[..., N]`` of one dtype and number of rows."""
    first_name, first = next(iter(blocks.items()))
    rows = prod(first.shape[:-1])
    for name, block in blocks.items():
        if block.dtype not in (np.complex64, np.complex128) or not is_contiguous(block):
            actual = f"{block.dtype} with strides {block.strides}"
            raise InputError(f"{name} must be C-contiguous and complex64 or complex128, got {actual}")
        if block.dtype != first.dtype or block.size != rows * block.shape[-1]:
            wanted, actual = f"{first.dtype} {first.shape}", f"{block.dtype} {block.shape}"
            raise InputError(f"{name} must match {first_name} in rows and dtype ({wanted}), got {actual}")


def check_coefficients(a: Array, x: Array, out: Array) -> None:
    """Raise InputError unless `a` is a matrix that takes the right-hand sides of `x` to those of `out`."""
    shape = (x.shape[-1], out.shape[-1])
    if a.shape != shape:
        raise InputError(f"the matrix must have shape {shape} (right-hand sides in, out), got {a.shape}")


def check_slice_vectors(name: str, vectors: Array) -> None:
    """Raise InputError unless `vectors` is C-contiguous complex ``[time, parity, site, 3, column]``."""
    if vectors.dtype not in (np.complex64, np.complex128):
        raise InputError(f"{name} must be complex64 or complex128, got {vectors.dtype}")
    if vectors.ndim != 5 or vectors.shape[1] != 2 or vectors.shape[3] != COLOURS or not vectors.size:
        raise InputError(f"{name} must have shape (time, 2, site, 3, column), got {vectors.shape}")
    check_array(name, vectors, vectors.shape, vectors.dtype)


def rows_of(V: Array) -> Array:
    """V ``[*, k]``, C-contiguous or leading columns of such an array, as its rows ``[R, k]``; no copy."""
    return V.reshape(-1, V.shape[-1])
