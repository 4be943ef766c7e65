"""A chirality of a site at a time in vector registers, triangles of matrices; field strength in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels import expressions
from stages.lqcd.kernels.clover import GENERAL, HERMITIAN, MATRIX_REALS
from stages.lqcd.kernels.cpu.compiled import compiled
from stages.lqcd.kernels.cpu.spinor_ir import CHIRAL, clover_factors, clover_sums
from stages.lqcd.kernels.cpu.vector_ir import REGISTER_BYTES, Builder, Emitter, Value, emitted
from stages.lqcd.kernels.expressions import inverse_triangles, triangles
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.lattice.geometry import Lattice

UPPER = np.triu_indices(CHIRAL, 1)


@dataclass(frozen=True)
class PackedClover:
    """Matrices of the sites of one parity: reals ``[site, chirality, 36]``, or 72.

    Of each Hermitian matrix its diagonal, then re, im of the elements above it, row by row; of others all.
    """

    sites: int
    dtype: np.dtype
    reals: NDArray
    kind: int = HERMITIAN


def pack(blocks: NDArray, constant: float) -> PackedClover:
    return PackedClover(len(blocks), blocks.dtype, triangles(blocks, constant, UPPER))


def inverse(packed: PackedClover) -> PackedClover | None:
    inverses = np.empty_like(packed.reals)
    finite = inverse_triangles(packed.reals, UPPER, inverses)
    return replace(packed, reals=inverses) if finite else None


def twisted(packed: PackedClover, mu: float, inverted: bool) -> PackedClover:
    reals = np.empty((packed.sites, 2, MATRIX_REALS[GENERAL]), packed.reals.dtype)
    expressions.twisted(packed.reals, UPPER, mu, inverted, reals)
    return replace(packed, reals=reals, kind=GENERAL)


def astype(packed: PackedClover, dtype: np.dtype) -> PackedClover:
    return replace(packed, dtype=dtype, reals=packed.reals.astype(dtype.type(0).real.dtype))


def multiply(packed: PackedClover, x: NDArray, out: NDArray) -> NDArray:
    addresses = (array.ctypes.data for array in (packed.reals, x, out))
    _product_kernel(x.shape[2], packed.dtype.itemsize // 2, packed.kind)(*addresses, len(x))
    return out


@cache
def _product_kernel(rhs: int, itemsize: int, kind: int) -> Callable[..., None]:
    """The product for `rhs` right-hand sides of reals of `itemsize` bytes, on addresses."""
    tile = min(2 * rhs, REGISTER_BYTES // itemsize)
    tiles, remainder = divmod(2 * rhs, tile)
    tile_bytes = tile * itemsize
    matrix_bytes, block_bytes = MATRIX_REALS[kind] * itemsize, COMPONENTS * rhs * itemsize

    def multiply(low: int, high: int, matrices: int, x: int, out: int, sites: int) -> None:
        for site in prange(low, high):
            for chirality in range(2):
                block = 2 * site + chirality
                c, v, w = matrices + block * matrix_bytes, x + block * block_bytes, out + block * block_bytes
                for k in range(tiles):
                    i = k * tile_bytes
                    _block_tile(c, v + i, w + i, rhs, itemsize, tile, kind)
                if remainder:
                    i = tiles * tile_bytes
                    _block_tile(c, v + i, w + i, rhs, itemsize, remainder, kind)

    signature = types.void(*[types.int64] * 4)
    return compiled(
        multiply, f"clover_{rhs}_{8 * itemsize}_{kind}", signature, lambda *arguments: arguments[-1]
    )


@emitted
def _block_tile(
    builder: Builder, c: Value, v: Value, w: Value, rhs: int, itemsize: int, lanes: int, kind: int
) -> None:
    """``out = C x`` for a chirality of a site and `lanes` reals of each component; addresses, literals."""
    row_bytes = 2 * rhs * itemsize
    emit = Emitter(builder, itemsize)
    vectors = [emit.load(v, i * row_bytes, lanes) for i in range(CHIRAL)]
    factors = clover_factors(emit, c, lanes, kind)
    for i, total in enumerate(clover_sums(emit, factors, vectors, [None] * CHIRAL, kind)):
        emit.store(total, w, i * row_bytes)


def field_strength(links: NDArray, lattice: Lattice, parity: int, mu: int, nu: int, out: NDArray) -> None:
    q = _clover_leaves(links, lattice, parity, mu, nu)
    out[...] = (q - _dagger(q)) / 8


def add_clover(term: NDArray, strength: NDArray, spins: NDArray[np.complex128]) -> None:
    for chirality, block in enumerate(spins.astype(term.dtype)):
        outer = np.einsum("rs,xab->xrasb", block, strength)
        term[:, chirality] += outer.reshape(-1, 6, 6)


def _clover_leaves(links: NDArray, lattice: Lattice, parity: int, mu: int, nu: int) -> NDArray:
    """Q_{mu nu} at the sites x of `parity`."""

    def link(direction: int, *steps: tuple[int, int]) -> NDArray:
        """U_direction at x moved by `steps` (direction, hops)."""
        sites: slice | NDArray[np.int32] = slice(None)
        at = parity
        for step, hops in steps:
            # neighbours of the sites reached so far: those tables are on the parity where the walk stands
            sites, at = lattice.neighbour(at, step, hops)[sites], 1 - at
        return links[direction, at][sites]

    up_mu, down_mu, up_nu, down_nu = (mu, 1), (mu, -1), (nu, 1), (nu, -1)
    first = link(mu) @ link(nu, up_mu) @ _dagger(link(mu, up_nu)) @ _dagger(link(nu))
    second = link(nu) @ _dagger(link(mu, up_nu, down_mu)) @ _dagger(link(nu, down_mu)) @ link(mu, down_mu)
    third = (
        _dagger(link(mu, down_mu))
        @ _dagger(link(nu, down_mu, down_nu))
        @ link(mu, down_mu, down_nu)
        @ link(nu, down_nu)
    )
    fourth = _dagger(link(nu, down_nu)) @ link(mu, down_nu) @ link(nu, up_mu, down_nu) @ _dagger(link(mu))
    return first + second + third + fourth


def _dagger(matrices: NDArray) -> NDArray:
    return matrices.conj().swapaxes(-1, -2)
