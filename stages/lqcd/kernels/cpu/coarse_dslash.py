"""Products with the matrices of a coarse grid operator on the CPU: one site at a time, a product a direction.

A matrix is read once for all right-hand sides; the block of a neighbour stays in the first cache meanwhile.
Matrices against the directions are expressions of NumPy, inverses are LAPACK's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.cpu.matrix_product import matrix_product


@dataclass(frozen=True)
class PackedCoarseLinks:
    """Matrices ``[site, direction, n, n]`` and int32 neighbours ``[site, direction]`` of output sites.

    input_sites: how many sites an input has at least.
    """

    links: NDArray
    neighbours: NDArray[np.int32]
    input_sites: int

    @property
    def dtype(self) -> np.dtype:
        return self.links.dtype

    @property
    def components(self) -> int:
        return self.links.shape[-1]


def pack(links: NDArray, neighbours: NDArray[np.int32]) -> PackedCoarseLinks:
    return PackedCoarseLinks(links, neighbours, int(neighbours.max()) + 1)


pack_half = pack


def coarse_dslash(
    packed: PackedCoarseLinks,
    x: NDArray,
    out: NDArray,
    *,
    diagonal: NDArray | None = None,
    a: float = 0.0,
    b: float = 1.0,
) -> NDArray:
    n, rhs = x.shape[1:]
    reals = [array.reshape(-1, n, rhs).view(x.real.dtype) for array in (x, out)]
    links = packed.links.reshape(len(packed.links), -1).view(x.real.dtype)
    if diagonal is None:
        a, diagonal = 0.0, np.zeros((1, n, rhs), x.dtype)
    added = diagonal.view(x.real.dtype)
    kernel = _kernel(n, rhs, x.itemsize // 2)
    kernel(links, packed.neighbours, reals[0], added, a, b, reals[1])
    return out


@cache
def _kernel(n: int, rhs: int, itemsize: int) -> Callable[..., None]:
    """The kernel for n x n matrices and `rhs` right-hand sides; one diagonal block serves every site."""
    element = 2 * itemsize
    pitch, matrix, block = rhs * element, n * n * element, n * rhs * element
    row = n * element

    def coarse_dslash(
        low: int,
        high: int,
        links: NDArray,
        neighbours: NDArray,
        x: NDArray,
        diagonal: NDArray,
        a: float,
        b: float,
        out: NDArray,
    ) -> None:
        sites, directions = neighbours.shape
        first, field = links.ctypes.data, x.ctypes.data
        step = 1 if len(diagonal) == sites else 0
        factor, scale = x.dtype.type(a), x.dtype.type(b)
        for site in prange(low, high):
            sums = np.zeros((n, 2 * rhs), x.dtype)
            total = sums.ctypes.data
            for d in range(directions):
                left = first + (site * directions + d) * matrix
                right = field + neighbours[site, d] * block
                matrix_product(
                    left, right, total, pitch, total, n,
                    itemsize, n, rhs, row, element, pitch, 0,
                )  # fmt: skip
            added, result = diagonal[site * step], out[site]
            for i in range(n):
                for lane in range(2 * rhs):
                    result[i, lane] = factor * added[i, lane] + scale * sums[i, lane]

    real = f"f{itemsize}"
    signature = types.void(
        array_type(real, 2),
        array_type("i4", 2),
        array_type(real, 3),
        array_type(real, 3),
        types.float64,
        types.float64,
        array_type(real, 3, writable=True),
    )
    name = f"coarse_dslash_{n}_{rhs}_{8 * itemsize}"
    return compiled(coarse_dslash, name, signature, lambda *arguments: len(arguments[-1]))


def add_backward(diagonal: NDArray, inside: Sequence[NDArray], links: NDArray, behind: NDArray) -> None:
    n = diagonal.shape[-1]
    signs = np.repeat([1.0, -1.0], n // 2)[:, None].astype(diagonal.real.dtype)

    def mirrored(matrices: NDArray) -> NDArray:
        return signs * matrices.conj().swapaxes(-1, -2) * signs.T

    for mu in range(4):
        diagonal += inside[mu] + mirrored(inside[mu])
        links[:, 2 * mu + 1] = mirrored(links[behind[:, mu], 2 * mu])
