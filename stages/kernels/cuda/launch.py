"""Template arguments, grids and shared memory of every CUDA kernel: arithmetic on shapes, no device needed.

Constants were chosen by measurement on an H200 (docs/cuda_kernels_h200.md). Nothing here asks the device, so
that a reduction adds in the same order on every GPU. Shared memory stays within the 163 KB of an A100.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from math import ceil, log2, prod

import numpy as np

from stages.lattice.errors import InputError
from stages.lattice.geometry import Lattice

MAX_RHS = 64
BLOCK_THREADS = 256
"""Threads of a block where nothing speaks against it."""

INDEX_LIMIT = 1 << 32
"""Vectors of a field that the dslash can count."""

MULTIPROCESSORS = 132
"""The grids of reductions and streaming kernels are multiples of this number, whatever the device."""

MULTIPROCESSOR_SHARED = 227 * 1024
"""Shared memory of a multiprocessor; it bounds how many blocks can be resident."""


@dataclass(frozen=True)
class Launch:
    """An instance of a kernel template of a `.cu` file, and how to start it."""

    file: str
    instance: str
    grid: tuple[int, ...]
    threads: int
    shared_bytes: int = 0


# --- dslash ----------------------------------------------------------------------------------------------

Box = tuple[int, int, int, int]
TILE: Box = (4, 4, 2, 1)
"""The tile wished for, in (x / 2, y, z, t): 32 sites, 36 KB of links in single precision."""


@dataclass(frozen=True)
class DslashShape:
    """How the dslash is cut up: sites of a tile per block, right-hand sides per thread, order of the tiles.

    Chunks of the traversal are in tiles; `resident_threads` per multiprocessor bounds the registers.
    """

    tile: Box
    rhs_per_thread: int
    sites_per_block: int
    y_chunk: int
    z_chunk: int
    resident_threads: int = 512


@cache
def dslash_tile(lattice: Lattice) -> Box:
    """The tile in which links are packed: it divides the lattice, has up to 32 sites and is shaped as TILE.

    It depends on the extents alone: one packing serves every number of right-hand sides and both precisions.
    """
    x, y, z, t = lattice.extents
    boxes = product(_divisors(x // 2), _divisors(y), _divisors(z), _divisors(t))
    return min(
        (box for box in boxes if prod(box) <= prod(TILE) and prod(box) % 2 == 0), key=_distance_from_tile
    )


def _distance_from_tile(box: Box) -> tuple[int, float]:
    return -prod(box), sum(abs(log2(side / wish)) for side, wish in zip(box, TILE, strict=True))


def dslash_shape(lattice: Lattice, dtype: np.dtype, n: int) -> DslashShape:
    """The shape measured best for this precision and number of right-hand sides."""
    if dtype == np.complex64:
        rhs = 4 if n % 4 == 0 and n >= 24 else 2 if n % 2 == 0 else 1
    else:
        rhs = 2 if n % 2 == 0 and n >= 16 else 1
    threads = 128 if dtype == np.complex128 and rhs == 2 else BLOCK_THREADS
    tile = dslash_tile(lattice)
    sites = max(s for s in _divisors(prod(tile)) if s == 1 or s * (n // rhs) <= threads)
    y_sites = 32 if n * dtype.itemsize <= 128 else 16
    y_tiles, z_tiles = lattice.extents[1] // tile[1], lattice.extents[2] // tile[2]
    y_chunk, z_chunk = _chunk(y_tiles, y_sites // tile[1]), _chunk(z_tiles, 8 // tile[2])
    return DslashShape(tile, rhs, sites, y_chunk, z_chunk)


@cache
def dslash(lattice: Lattice, directions: int, dtype: np.dtype, n: int) -> Launch:
    """The dslash of `hisq_dslash.cu` in its best shape."""
    _check_rhs(n)
    _check_index(lattice, dtype, n)
    return dslash_in_shape(lattice, directions, dtype, n, dslash_shape(lattice, dtype, n))


def dslash_in_shape(lattice: Lattice, directions: int, dtype: np.dtype, n: int, shape: DslashShape) -> Launch:
    """The dslash in a given shape, for benchmarks."""
    threads = shape.sites_per_block * (n // shape.rhs_per_thread)
    shared_bytes = shape.sites_per_block * directions * 9 * dtype.itemsize
    resident_blocks = min(
        shape.resident_threads // 32 // ceil(threads / 32), MULTIPROCESSOR_SHARED // shared_bytes
    )
    min_blocks = max(1, resident_blocks)
    geometry = (_extents(lattice), f"Tile<{_list(shape.tile)}>", directions)
    block = (n, shape.rhs_per_thread, shape.sites_per_block, min_blocks)
    return Launch(
        "hisq_dslash.cu",
        _instance("hisq_dslash", dtype, *geometry, *block, shape.y_chunk, shape.z_chunk),
        (lattice.half_volume // shape.sites_per_block,),
        threads,
        shared_bytes,
    )


# --- block linear algebra --------------------------------------------------------------------------------


@cache
def gram(nx: int, ny: int, dtype: np.dtype, rows: int) -> Launch:
    """Partial Gram matrices, complex128 ``[grid, nx, ny]``: a ring of 3 stages of 8 to 32 KB.

    Wide blocks are bound by shared-memory reads: 8 x 4 elements a thread; narrow ones by threads: 2 x 2.
    """
    _check_rhs(nx, ny)
    single = dtype == np.complex64
    tx = 8 if nx >= 16 else min(2, nx)
    ty = 4 if ny >= 16 else min(2, ny)
    tiles = ceil(nx / tx) * ceil(ny / ty)
    slices = _power_of_two((64 if min(nx, ny) >= 16 else 128) // tiles)
    granule = max(2, slices)
    row_bytes = (nx + ny) * dtype.itemsize
    stage = 32768 if single and nx + ny > 64 else 16384 if single else 8192
    chunk = max(granule, stage // row_bytes // granule * granule)
    flush = ceil(16 * slices / chunk) if single else 0
    ring = 3 * chunk * row_bytes + 8 * dtype.itemsize
    scratch = 2 * tx * ty * tiles * slices // 2 * 8
    return Launch(
        "gram.cu",
        _instance("gram_partials", dtype, nx, ny, tx, ty, slices, chunk, flush),
        (min(ceil(rows / chunk), 4 * MULTIPROCESSORS),),
        tiles * slices,
        max(ring, scratch),
    )


@cache
def multiply_add(nx: int, ny: int, dtype: np.dtype, rows: int) -> Launch:
    """out = base + x a: 2 x 2 elements a thread for narrow blocks, more where arithmetic limits."""
    _check_rhs(nx, ny)
    single = dtype == np.complex64
    columns = min(ny, 4 if single and ny > 16 else 2)
    thread_rows = 4 if ny > (32 if single else 16) else 2
    lanes = ceil(ny / columns)
    stages_per_row = 2 * (nx * dtype.itemsize + 16)
    groups = _power_of_two(min(128 // lanes, 72 * 1024 // (thread_rows * stages_per_row)))
    return Launch(
        "multiply_add.cu",
        _instance("multiply_add", dtype, nx, ny, thread_rows, columns, groups),
        (min(ceil(rows / (groups * thread_rows)), 8 * MULTIPROCESSORS),),
        lanes * groups,
        nx * lanes * columns * dtype.itemsize + groups * thread_rows * stages_per_row,
    )


@cache
def rows_kernel(file: str, kernel: str, n: int, dtype: np.dtype, rows: int, slices: int = 1) -> Launch:
    """A kernel on per-rhs columns (`rows.cuh`) over `slices` runs of `rows` rows; grid (parts, slices)."""
    threads, groups = _column_threads(n, dtype)
    parts = min(ceil(rows / (4 * groups)), ceil(8 * MULTIPROCESSORS / slices))
    return Launch(file, _instance(kernel, dtype, n, groups), (parts, slices), threads)


@cache
def one_link_current(lattice: Lattice, n: int, dtype: np.dtype) -> Launch:
    """Partial currents, float64 ``[parts, t, mu, n]``; grid (parts, t)."""
    threads, groups = _column_threads(n, dtype)
    slices = lattice.time_extent
    parts = min(ceil(lattice.sites_per_slice / groups), ceil(8 * MULTIPROCESSORS / slices))
    instance = _instance("current_partials", dtype, _extents(lattice), n, groups)
    return Launch("one_link_current.cu", instance, (parts, slices), threads)


@cache
def sum_partials(count: int) -> Launch:
    """The second stage of every reduction, for `count` doubles."""
    return Launch("sum_partials.cu", "sum_partials", (ceil(count / 32),), 1024)


@cache
def add_staple(lattice: Lattice, dtype: np.dtype) -> Launch:
    """Both staples around every link of a direction, a thread per site."""
    instance = f"add_staple<{_real(dtype)}, {_list(lattice.extents)}>"
    return Launch("staple.cu", instance, (ceil(lattice.volume / 128),), 128)


# --- arithmetic ------------------------------------------------------------------------------------------


def _check_rhs(*counts: int) -> None:
    for n in counts:
        if not 1 <= n <= MAX_RHS:
            raise InputError(f"CUDA kernels take 1 to {MAX_RHS} right-hand sides, got {n}: split the block")


def _check_index(lattice: Lattice, dtype: np.dtype, n: int) -> None:
    """The dslash counts the vectors of a field with 32 bits, which spares registers."""
    if _vectors_per_field(lattice, dtype, n) < INDEX_LIMIT:
        return
    fitting = [m for m in range(1, n) if _vectors_per_field(lattice, dtype, m) < INDEX_LIMIT]
    remedy = f"fewer right-hand sides, {fitting[-1]} at a time" if fitting else "a smaller lattice"
    raise InputError(
        f"a field of {n} right-hand sides on the lattice {lattice} has more elements than the CUDA dslash "
        f"counts, 2^32 vectors of up to 16 bytes: take {remedy}"
    )


def _vectors_per_field(lattice: Lattice, dtype: np.dtype, n: int) -> int:
    """Vectors of one parity's field ``[site, 3, n]``: pairs in single precision where n is even."""
    return lattice.half_volume * 3 * n // (2 if dtype == np.complex64 and n % 2 == 0 else 1)


def _instance(kernel: str, dtype: np.dtype, *arguments: object) -> str:
    return f"{kernel}<{', '.join(map(str, (_real(dtype), *arguments)))}>"


def _real(dtype: np.dtype) -> str:
    return "float" if dtype == np.complex64 else "double"


def _extents(lattice: Lattice) -> str:
    return f"Extents<{_list(lattice.extents)}>"


def _list(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _chunk(tiles: int, most: int) -> int:
    return max(d for d in _divisors(tiles) if d <= max(1, most))


def _power_of_two(n: int) -> int:
    """The largest power of two up to n."""
    return 1 << (max(1, n).bit_length() - 1)


def _column_threads(n: int, dtype: np.dtype) -> tuple[int, int]:
    """Threads and groups of a block for a kernel on columns; two columns share a vector if n is even."""
    _check_rhs(n)
    width = 2 if dtype == np.complex64 and n % 2 == 0 else 1
    groups = _power_of_two(BLOCK_THREADS // (n // width))
    return n // width * groups, groups
