"""Transfers in single precision on tensor cores; double precision, in which no cycle runs, is refused."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import cupy
import numpy as np

from stages.errors import InputError
from stages.lqcd.kernels import aggregation as contract
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import aggregation as shapes
from stages.lqcd.kernels.cuda.launch.aggregation import MOST_VECTORS
from stages.lqcd.kernels.cuda.launch.coarse import ROWS, TERMS
from stages.lqcd.kernels.expressions import combined as combined
from stages.lqcd.kernels.expressions import cut as cut
from stages.lqcd.kernels.expressions import gathered as gathered
from stages.lqcd.kernels.expressions import inverse_root as inverse_root
from stages.lqcd.kernels.expressions import scattered as scattered


@dataclass(frozen=True, eq=False)
class PackedVectors(contract.PackedVectors):
    """Vectors ``[aggregate, chirality, m, vectors]``, and the same in the order of each kernel, once used."""

    @cached_property
    def row_tiles(self) -> cupy.ndarray:
        """``[aggregate, chirality, 16 rows, 8 vectors, lane, 4]`` for the prolongation, zero beyond."""
        groups, chunks = -(-self.vectors.shape[2] // ROWS), -(-self.vector_count // TERMS)
        tiles = self._padded(groups * ROWS).reshape(-1, groups, 2, 8, chunks, 2, 4)
        return cupy.ascontiguousarray(tiles.transpose(0, 1, 4, 3, 6, 5, 2))

    @cached_property
    def term_tiles(self) -> cupy.ndarray:
        """``[aggregate, chirality, 8 rows, 8 vectors, lane, 2]`` for the restriction, zero beyond."""
        steps, chunks = -(-self.vectors.shape[2] // TERMS), -(-self.vector_count // TERMS)
        tiles = self._padded(steps * TERMS).reshape(-1, steps, 2, 4, chunks, 8)
        return cupy.ascontiguousarray(tiles.transpose(0, 1, 4, 5, 3, 2))

    def _padded(self, rows: int) -> cupy.ndarray:
        count, _, m, k = self.vectors.shape
        if m == rows and k % TERMS == 0:
            return self.vectors
        padded = cupy.zeros((2 * count, rows, -(-k // TERMS) * TERMS), self.dtype)
        padded[:, :m, :k] = self.vectors.reshape(2 * count, m, k)
        return padded


def pack(vectors: cupy.ndarray, sites: cupy.ndarray, fine_sites: int) -> PackedVectors:
    _check_single(vectors)
    return PackedVectors(vectors, cupy.asarray(sites), fine_sites)


def most_vectors() -> int:
    return MOST_VECTORS


def gram(vectors: cupy.ndarray) -> cupy.ndarray:
    *matrices, rows, k = vectors.shape
    _check_single(vectors)
    if k > MOST_VECTORS:
        raise InputError(f"a GPU takes at most {MOST_VECTORS} vectors of an aggregate, got {k}")
    result = cupy.empty((*matrices, k, k), np.complex128)
    if result.size:
        run(shapes.gram(k, prod(matrices)), vectors, result, np.int32(rows))
    return result


def restrict(packed: PackedVectors, x: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    count, sites = packed.sites.shape
    kernel = shapes.restrict(packed.components, packed.vector_count, x.shape[2], count)
    run(kernel, packed.term_tiles, packed.sites, x, out, np.int32(sites))
    return out


def add_prolonged(packed: PackedVectors, coarse: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    count, sites = packed.sites.shape
    kernel = shapes.add_prolonged(packed.components, packed.vector_count, out.shape[2], count, sites)
    run(kernel, packed.row_tiles, packed.sites, coarse, out, np.int32(sites))
    return out


def _check_single(vectors: cupy.ndarray) -> None:
    if vectors.dtype != np.complex64:
        raise InputError(f"multigrid on a GPU has complex64 vectors, got {vectors.dtype}: convert them")
