"""The clover term: its field strength, and products with its chirality-diagonal matrices.

Links are ``[mu, parity, site, 3, 3]``, complex64 or complex128.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.kernels.operands import check_array
from stages.lqcd.lattice.geometry import Lattice

HERMITIAN, GENERAL, ADJOINT = range(3)
"""Kinds of matrices: Hermitian; any, as they are stored, and the adjoints of those that are stored."""

MATRIX_REALS = (36, 72, 72)
"""Of a matrix of each kind: a triangle, or all elements row by row."""


class PackedClover(Protocol):
    """Matrices of the sites of one parity, laid out for the kernels."""

    @property
    def sites(self) -> int: ...

    @property
    def dtype(self) -> np.dtype: ...

    @property
    def kind(self) -> int: ...


def pack(blocks: Array, constant: float = 0.0) -> PackedClover:
    """Constant + C, C complex Hermitian ``[site, 2, 6, 6]``, laid out for the kernels.

    They may read either triangle.

    Raises InputError on a wrong shape.
    """
    if blocks.dtype not in (np.complex64, np.complex128):
        raise InputError(f"clover matrices must be complex64 or complex128, got {blocks.dtype}")
    check_array("clover matrices", blocks, (len(blocks), 2, 6, 6), blocks.dtype)
    return kernel("clover.pack", type(blocks))(blocks, constant)


def multiply(packed: PackedClover, x: Array, out: Array) -> Array:
    """``out = C x`` at every site; ``[site, 12, N]``, `out` may be `x`. Returns `out`. Raises InputError."""
    if x.ndim != 3:
        raise InputError(f"x must have shape (sites, 12, right-hand sides), got {x.shape}")
    for name, array in (("x", x), ("out", out)):
        check_array(name, array, (packed.sites, COMPONENTS, x.shape[2]), packed.dtype)
    return kernel("clover.multiply", type(packed))(packed, x, out)


def inverse(packed: PackedClover) -> PackedClover:
    """The inverses of Hermitian matrices. Raises InputError where one is singular; the host waits for it."""
    inverses = kernel("clover.inverse", type(packed))(packed)
    if inverses is None:
        raise InputError("a clover matrix is singular")
    return inverses


def twisted(packed: PackedClover, mu: float, inverted: bool = False) -> PackedClover:
    """C + i mu gamma5 of Hermitian C, or its inverse (C - i mu gamma5) / (C^2 + mu^2); mu is not 0."""
    return kernel("clover.twisted", type(packed))(packed, mu, inverted)


def adjoint(packed: Any) -> PackedClover:
    """The adjoint matrices, which take no memory: those of -mu where `packed` are `twisted` ones."""
    return replace(packed, kind=(HERMITIAN, ADJOINT, GENERAL)[packed.kind])


def astype(packed: PackedClover, dtype: DTypeLike) -> PackedClover:
    """The matrices in another precision."""
    return kernel("clover.astype", type(packed))(packed, np.dtype(dtype))


def field_strength(links: Array, lattice: Lattice, parity: int, mu: int, nu: int, out: Array) -> None:
    """``out = (Q - Q^dag) / 8``, Q the sum of the four plaquettes in the plane that start and end at x.

    The one along +mu, +nu is the first. `out` is anti-Hermitian ``[site, 3, 3]`` of the sites x of `parity`.
    Raises InputError.
    """
    if mu == nu or not {mu, nu} <= {0, 1, 2, 3}:
        raise InputError(f"a plane is two different directions out of 0, 1, 2, 3, got {mu} and {nu}")
    check_array("links", links, (4, 2, lattice.half_volume, 3, 3), links.dtype)
    check_array("out", out, (lattice.half_volume, 3, 3), links.dtype)
    kernel("clover.field_strength", type(links))(links, lattice, parity, mu, nu, out)


def add_clover(term: Array, strength: Array, spins: NDArray[np.complex128]) -> None:
    """``term += spins x F``: Hermitian ``[site, chirality, 6, 6]``, index 3 * (spin % 2) + colour.

    spins: of each chirality, ``[chirality, 2, 2]`` on the host. Raises InputError.
    """
    check_array("F", strength, (len(term), 3, 3), term.dtype)
    check_array("the clover term", term, (len(term), 2, 6, 6), strength.dtype)
    kernel("clover.add_clover", type(term))(term, strength, spins)
