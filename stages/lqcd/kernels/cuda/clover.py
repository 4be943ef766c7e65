"""Triangles of matrices, one thread a right-hand side."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, Launch, check_rhs, instance
from stages.lqcd.kernels.expressions import inverse_triangles, triangles

LOWER = np.tril_indices(6, -1)


@dataclass(frozen=True)
class PackedClover:
    """Matrices of the sites of one parity in 36 reals each, ``[site, chirality, 36]``.

    The 6 numbers of the diagonal come first, then the 15 complex ones below it, row by row.
    """

    sites: int
    dtype: np.dtype
    matrices: cupy.ndarray


def pack(blocks: cupy.ndarray, constant: float) -> PackedClover:
    return PackedClover(len(blocks), np.dtype(blocks.dtype), triangles(blocks, constant, LOWER))


def inverse(packed: PackedClover) -> PackedClover | None:
    inverses = inverse_triangles(packed.matrices, LOWER)
    return None if inverses is None else replace(packed, matrices=inverses)


def astype(packed: PackedClover, dtype: np.dtype) -> PackedClover:
    return replace(packed, dtype=dtype, matrices=packed.matrices.astype(dtype.type(0).real.dtype))


def multiply(packed: PackedClover, x: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    kernel = clover_multiply_launch(packed.sites, packed.dtype, x.shape[2])
    run(kernel, packed.matrices, x, out, np.int32(packed.sites))
    return out


@cache
def clover_multiply_launch(sites: int, dtype: np.dtype, n: int) -> Launch:
    """Products with clover matrices, a thread per site, chirality and one or two right-hand sides."""
    check_rhs(n)
    rhs = 2 if dtype == np.complex64 and n % 2 == 0 else 1
    blocks = ceil(2 * sites * (n // rhs) / BLOCK_THREADS)
    return Launch("clover.cu", instance("clover_multiply", dtype, n, rhs), (blocks,), BLOCK_THREADS)
