"""Triangles of matrices, one thread a right-hand side; field strength, one thread a site."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import ceil

import cupy
import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels import expressions
from stages.lqcd.kernels.clover import GENERAL, HERMITIAN, MATRIX_REALS
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.own_rows import on_own_rows
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.fields import assign, empty_field
from stages.lqcd.kernels.cuda.launch import (
    BLOCK_THREADS,
    MULTIPROCESSORS,
    WARPS_THREADS,
    Launch,
    check_rhs,
    instance,
    on_lattice,
    real_of,
    warp_work,
)
from stages.lqcd.kernels.expressions import inverse_triangles, triangles
from stages.lqcd.lattice.geometry import Lattice

LOWER = np.tril_indices(6, -1)


@dataclass(frozen=True)
class PackedClover:
    """Matrices of the sites of one parity in 36 reals each, ``[site, chirality, 36]``, or 72.

    Of a Hermitian one the 6 numbers of the diagonal come first, then the 15 complex ones below it, row by
    row; of others there are all.
    """

    sites: int
    dtype: np.dtype
    matrices: cupy.ndarray
    kind: int = HERMITIAN


def pack(blocks: cupy.ndarray, constant: float) -> PackedClover:
    matrices = empty_field((*blocks.shape[:2], MATRIX_REALS[HERMITIAN]), blocks.real.dtype)
    on_own_rows(lambda blocks, reals: triangles(blocks, constant, LOWER, reals), blocks, matrices)
    return PackedClover(len(blocks), np.dtype(blocks.dtype), matrices)


def inverse(packed: PackedClover) -> PackedClover | None:
    inverses = empty_field(packed.matrices.shape, packed.matrices.dtype)
    finite = on_own_rows(lambda a, b: inverse_triangles(a, LOWER, b), packed.matrices, inverses)
    return replace(packed, matrices=inverses) if all(finite) else None


def twisted(packed: PackedClover, mu: float, inverted: bool) -> PackedClover:
    matrices = empty_field((packed.sites, 2, MATRIX_REALS[GENERAL]), packed.matrices.dtype)
    on_own_rows(lambda a, b: expressions.twisted(a, LOWER, mu, inverted, b), packed.matrices, matrices)
    return replace(packed, matrices=matrices, kind=GENERAL)


def astype(packed: PackedClover, dtype: np.dtype) -> PackedClover:
    matrices = empty_field(packed.matrices.shape, dtype.type(0).real.dtype)
    assign(matrices, packed.matrices)
    return replace(packed, dtype=dtype, matrices=matrices)


def multiply(packed: PackedClover, x: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    kernel = clover_multiply_launch(packed.sites, packed.dtype, x.shape[2], packed.kind)
    run(kernel, packed.matrices, x, out, np.int32(packed.sites))
    return out


@cache
def clover_multiply_launch(sites: int, dtype: np.dtype, n: int, kind: int = HERMITIAN) -> Launch:
    """Products with clover matrices, a thread per site, chirality and one or two right-hand sides."""
    check_rhs(n)
    rhs = 2 if dtype == np.complex64 and n % 2 == 0 else 1
    threads = 2 * sites * (n // rhs)
    name, work = instance("clover_multiply", dtype, n, rhs, kind), RowWork(threads, BLOCK_THREADS)
    return Launch("clover.cu", name, (ceil(threads / BLOCK_THREADS),), BLOCK_THREADS, work=work)


def field_strength(
    links: cupy.ndarray, lattice: Lattice, parity: int, mu: int, nu: int, out: cupy.ndarray
) -> None:
    kernel = field_strength_launch(lattice, out.dtype)
    run(kernel, out, links, np.int32(parity), np.int32(mu), np.int32(nu))


def add_clover(term: cupy.ndarray, strength: cupy.ndarray, spins: NDArray[np.complex128]) -> None:
    blocks = cupy.asarray(spins.astype(term.dtype))
    run(add_clover_launch(term.size, term.dtype), term, strength, blocks, np.uint64(term.size))


@cache
def field_strength_launch(lattice: Lattice, dtype: np.dtype) -> Launch:
    """The four plaquettes around every site of a parity."""
    blocks = ceil(lattice.half_volume / WARPS_THREADS)
    kernel = on_lattice("field_strength", lattice, dtype)
    work = warp_work(lattice)
    return Launch("field_strength.cu", kernel, (blocks,), WARPS_THREADS, for_lattice=True, work=work)


@cache
def add_clover_launch(elements: int, dtype: np.dtype) -> Launch:
    """Products of spin and colour matrices, an element of the clover term a thread."""
    blocks = min(ceil(elements / BLOCK_THREADS), 16 * MULTIPROCESSORS)
    name, work = f"add_clover<{real_of(dtype)}>", RowWork(elements)
    return Launch("field_strength.cu", name, (blocks,), BLOCK_THREADS, work=work)
