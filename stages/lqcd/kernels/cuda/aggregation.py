"""Transfers in single precision on tensor cores; double precision, in which no cycle runs, is refused."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from math import ceil, prod

import cupy
import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels import aggregation as contract
from stages.lqcd.kernels import expressions
from stages.lqcd.kernels.cuda.coarse_dslash import ROWS, TERMS
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.own_rows import of_rows, on_rows, rows_beside, site_work
from stages.lqcd.kernels.cuda.devices.partition import Work
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, MULTIPROCESSORS, Launch, check_rhs

COLUMNS = 16
"""Right-hand sides of a tile of restrictions, and those of a prolongation that registers hold."""

TILES = 12
"""Tiles of 16 right-hand sides and 8 vectors of a restriction that registers hold."""

WARPS = 4
"""Of a block where there are many blocks."""

BLOCKS = 16 * MULTIPROCESSORS
"""Wished for: a prolongation cuts the rows of aggregates to get them, a restriction adds warps to fewer."""

GRAM_TILE = 8
"""Rows and columns of a Gram matrix that tensor cores sum together."""

GRAM_VECTORS = 32
"""Most whose Gram matrix fits the registers of a warp."""

GRAM_PART = 1 << 22
"""Numbers of vectors that are multiplied at once where they are more: 64 MB in double."""


@dataclass(frozen=True, eq=False)
class PackedVectors(contract.PackedVectors):
    """Vectors ``[aggregate, chirality, m, vectors]``, and the same in the order of each kernel, once used."""

    @cached_property
    def row_tiles(self) -> cupy.ndarray:
        """``[aggregate, chirality, 16 rows, 8 vectors, lane, 4]`` for the prolongation, zero beyond."""
        return self._in_tiles("row_tiles", ROWS, 4)

    @cached_property
    def term_tiles(self) -> cupy.ndarray:
        """``[aggregate, chirality, 8 rows, 8 vectors, lane, 2]`` for the restriction, zero beyond."""
        return self._in_tiles("term_tiles", TERMS, 2)

    def _in_tiles(self, order: str, tile_rows: int, per_lane: int) -> cupy.ndarray:
        """Vectors, which may be leading rows of larger matrices, in the order of a kernel."""
        vectors: cupy.ndarray = self.vectors  # type: ignore[assignment]
        count, _, rows, k = vectors.shape
        shape = (count, 2, ceil(rows / tile_rows), ceil(k / TERMS), 32, per_lane)
        tiles = rows_beside(vectors, shape, vectors.dtype)
        kernel = tiles_launch(order, k, 2 * count, site_work(vectors, per_site=2))
        pitch = vectors.strides[1] // (k * vectors.itemsize)
        run(kernel, np.uintp(vectors.data.ptr), tiles, np.int32(rows), np.int32(pitch))
        return tiles


@dataclass(frozen=True, eq=False)
class PackedTiles:
    """Vectors in the orders of both kernels, and in no other."""

    row_tiles: cupy.ndarray
    term_tiles: cupy.ndarray
    sites: cupy.ndarray
    fine_sites: int
    components: int
    vector_count: int

    dtype = np.dtype(np.complex64)

    @property
    def aggregate_count(self) -> int:
        return len(self.sites)


def for_products(packed: PackedVectors) -> PackedTiles:
    shape = packed.fine_sites, packed.components, packed.vector_count
    return PackedTiles(packed.row_tiles, packed.term_tiles, packed.sites, *shape)


def pack(vectors: cupy.ndarray, sites: cupy.ndarray, fine_sites: int) -> PackedVectors:
    _check_single(vectors)
    return PackedVectors(vectors, cupy.asarray(sites), fine_sites)


def gram(vectors: cupy.ndarray) -> cupy.ndarray:
    *matrices, rows, k = vectors.shape
    _check_single(vectors)
    if k > contract.MOST_ON_GPU:
        raise InputError(f"a GPU takes at most {contract.MOST_ON_GPU} vectors of an aggregate, got {k}")
    result = rows_beside(vectors, (*matrices, k, k), np.complex128)
    if k > GRAM_VECTORS:
        on_rows(_gram_in_parts, vectors, result)
    elif result.size:
        work = site_work(vectors, per_site=2)
        run(gram_launch(k, prod(matrices), work), vectors, result, np.int32(rows))
    return result


def _gram_in_parts(fields: cupy.ndarray, out: cupy.ndarray) -> None:
    """``out = V^H V`` by cuBLAS, in double, some matrices at a time."""
    *_, rows, k = fields.shape
    vectors, result = fields.reshape(-1, rows, k), out.reshape(-1, k, k)
    step = max(1, GRAM_PART // (rows * k))
    for first in range(0, len(vectors), step):
        part = vectors[first : first + step].astype(np.complex128)
        cupy.matmul(part.conj().swapaxes(1, 2), part, out=result[first : first + step])


def restrict(packed: PackedVectors | PackedTiles, x: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    count, sites = packed.sites.shape
    work = site_work(packed.term_tiles, axis=1, per_site=2)
    kernel = restrict_launch(packed.components, packed.vector_count, x.shape[2], count, work)
    run(kernel, packed.term_tiles, packed.sites, x, out, np.int32(sites))
    return out


def add_prolonged(
    packed: PackedVectors | PackedTiles, coarse: cupy.ndarray, out: cupy.ndarray
) -> cupy.ndarray:
    count, sites = packed.sites.shape
    work = site_work(packed.row_tiles, axis=1, per_site=2)
    kernel = add_prolonged_launch(packed.components, packed.vector_count, out.shape[2], count, sites, work)
    run(kernel, packed.row_tiles, packed.sites, coarse, out, np.int32(sites))
    return out


def inverse_root(gram: cupy.ndarray) -> cupy.ndarray:
    return of_rows(expressions.inverse_root, gram)


def combined(vectors: cupy.ndarray, matrices: cupy.ndarray) -> cupy.ndarray:
    return of_rows(expressions.combined, vectors, matrices)


def gather(fields: cupy.ndarray, sites: cupy.ndarray, out: cupy.ndarray) -> None:
    on_rows(lambda own, there, all_of: expressions.gather(all_of, there, own), out, sites, whole=(fields,))


def scattered(vectors: cupy.ndarray, sites: cupy.ndarray, out: cupy.ndarray) -> None:
    on_rows(expressions.scattered, vectors, sites, whole=(out,))


def cut(vectors: cupy.ndarray, places: cupy.ndarray, per_aggregate: int) -> cupy.ndarray:
    return of_rows(lambda own, there: expressions.cut(own, there, per_aggregate), vectors, places)


def _check_single(vectors: cupy.ndarray) -> None:
    if vectors.dtype != np.complex64:
        raise InputError(f"multigrid on a GPU has complex64 vectors, got {vectors.dtype}: convert them")


@cache
def gram_launch(vectors: int, matrices: int, work: Work | None = None) -> Launch:
    """Grid (matrices); a block's warps share the rows, each sums the whole Gram matrix in its registers."""
    tiles = ceil(vectors / GRAM_TILE)
    sums = WARPS * tiles * (tiles + 1) // 2 * GRAM_TILE**2 * 16
    instance = f"aggregate_gram<{vectors}, {WARPS}>"
    return Launch("aggregate_gram.cu", instance, (matrices,), 32 * WARPS, sums, work=work)


@cache
def tiles_launch(order: str, vectors: int, matrices: int, work: Work | None = None) -> Launch:
    """Grid (matrices); order: the kernel, `row_tiles` or `term_tiles`."""
    return Launch("vector_tiles.cu", f"{order}<{vectors}>", (matrices,), BLOCK_THREADS, work=work)


@cache
def restrict_launch(
    components: int, vectors: int, n: int, aggregates: int, work: Work | None = None
) -> Launch:
    """Grid (groups of right-hand sides, 2 aggregates); a block's warps share the rows of an aggregate."""
    check_rhs(n)
    warps = WARPS if 2 * aggregates >= BLOCKS else 2 * WARPS
    blocks = ceil(n / (COLUMNS * max(1, TILES // ceil(vectors / TERMS))))
    columns = n if blocks == 1 else 2 * ceil(n / (2 * blocks))
    instance = f"restrict_field<{components}, {vectors}, {n}, {columns}, {warps}>"
    grid = (blocks, 2 * aggregates)
    return Launch("aggregation.cu", instance, grid, 32 * warps, warps * vectors * columns * 8, work=work)


@cache
def add_prolonged_launch(
    components: int, vectors: int, n: int, aggregates: int, sites: int, work: Work | None = None
) -> Launch:
    """Grid (1, 2 aggregates, parts of the rows); `sites` of an aggregate."""
    check_rhs(n)
    parts = min(ceil(sites * components / (ROWS * WARPS)), ceil(BLOCKS / (2 * aggregates)))
    grid, arguments = (1, 2 * aggregates, parts), f"{components}, {vectors}, {n}"
    if n <= COLUMNS:
        instance = f"add_prolonged<{arguments}, {n}, {WARPS}>"
        return Launch("aggregation.cu", instance, grid, 32 * WARPS, work=work)
    shared = ceil(vectors / TERMS) * ceil(n / COLUMNS) * 2 * 32 * 32
    return Launch(
        "aggregation.cu", f"add_prolonged_to_many<{arguments}, {WARPS}>", grid, 32 * WARPS, shared, work=work
    )
