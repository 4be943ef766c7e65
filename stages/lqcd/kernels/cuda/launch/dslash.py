"""Shapes of the dslash kernels: tiles, right-hand sides per thread, order of the tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import ceil, log2, prod

import numpy as np

from stages.errors import InputError
from stages.lqcd.kernels.cuda.launch.base import (
    BLOCK_SHARED,
    BLOCK_THREADS,
    MULTIPROCESSOR_SHARED,
    Launch,
    check_rhs,
    divisors,
    extents_of,
    instance,
    listed,
)
from stages.lqcd.kernels.cuda.tuning.choice import Options, tuned
from stages.lqcd.lattice.geometry import Lattice

INDEX_LIMIT = 1 << 32
"""Vectors of a field that the dslash can count."""


Box = tuple[int, int, int, int]
TILE: Box = (4, 4, 2, 1)
"""The tile wished for, in (x / 2, y, z, t): 32 sites, 36 KB of links in single precision."""


@dataclass(frozen=True)
class Form:
    """Storage of links (links.cuh) and of the fields x and out: template arguments of `hisq_dslash.cu`."""

    links: str
    x: str = "Whole"
    out: str = "Whole"

    def __str__(self) -> str:
        return f"{self.links}-{self.x}-{self.out}"

    def shared_bytes(self, sites: int, directions: int, dtype: np.dtype) -> int:
        """Shared memory for the links of `sites` sites, as SHARED_BYTES of links.cuh."""
        if self.links == THIRTEEN.links:
            reals = 2 * sites * (18 + 12 + 6 + 1)
            return 4 * (ceil(reals * dtype.itemsize / 2 / 16) * 16)
        return sites * directions * 9 * dtype.itemsize


FULL = Form("Links18")
THIRTEEN = Form("Links13")
HALF = Form("Links18", "Half", "Half")
HALF_TO_SINGLE = Form("Links18", "Half", "Whole")


@dataclass(frozen=True)
class DslashShape:
    """Shape of the dslash: sites of a tile per block, right-hand sides per thread, order of the tiles.

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
    return nearest_box(lattice, TILE)


def nearest_box(lattice: Lattice, wish: Box) -> Box:
    """The largest box, up to the one wished for, that divides one parity's lattice.

    Among those of a size the one of the most similar shape; it has an even number of sites.
    """

    def distance(box: Box) -> tuple[int, float]:
        return -prod(box), sum(abs(log2(side / wished)) for side, wished in zip(box, wish, strict=True))

    x, y, z, t = lattice.extents
    boxes = product(divisors(x // 2), divisors(y), divisors(z), divisors(t))
    return min((box for box in boxes if prod(box) <= prod(wish) and prod(box) % 2 == 0), key=distance)


def dslash_shape(lattice: Lattice, dtype: np.dtype, n: int, form: Form = FULL) -> DslashShape:
    """The shape measured best for this precision and number of right-hand sides."""
    if form.x == "Half":
        rhs, threads, resident = (4 if n % 4 == 0 and n >= 24 else 2 if n % 2 == 0 else 1), 256, 768
    elif dtype == np.complex64:
        rhs, threads, resident = _single(n, form)
    else:
        rhs, threads, resident = (2, 128, 512) if n % 2 == 0 and n >= 16 else (1, 128, 640)
    return _shape(lattice, dtype, n, rhs, threads, resident)


def _single(n: int, form: Form) -> tuple[int, int, int]:
    """Right-hand sides per thread, threads of a block and resident threads in single precision."""
    if n % 2 or n <= 8:
        threads = 16 if n == 1 and form == THIRTEEN else BLOCK_THREADS
        return 2 if n % 2 == 0 else 1, threads, 512
    if n % 32 == 0:
        return 4, BLOCK_THREADS, 512
    return (2, BLOCK_THREADS, 768) if n <= 16 else (2, 128, 640) if n <= 32 else (2, 192, 768)


def _shape(lattice: Lattice, dtype: np.dtype, n: int, rhs: int, threads: int, resident: int) -> DslashShape:
    """Blocks of up to `threads` threads; the wider the fields, the fewer sites a chunk of the order has."""
    tile = dslash_tile(lattice)
    sites = max(s for s in divisors(prod(tile)) if s == 1 or s * (n // rhs) <= threads)
    width = n * dtype.itemsize
    y_sites = 32 if width <= 128 else 16 if width < 512 else 8
    z_sites = 16 if width <= 64 else 8
    y_tiles, z_tiles = lattice.extents[1] // tile[1], lattice.extents[2] // tile[2]
    y_chunk, z_chunk = chunk(y_tiles, y_sites // tile[1]), chunk(z_tiles, z_sites // tile[2])
    return DslashShape(tile, rhs, sites, y_chunk, z_chunk, resident)


def candidates(
    lattice: Lattice, directions: int, dtype: np.dtype, n: int, form: Form = FULL
) -> tuple[DslashShape, ...]:
    """Up to 12 shapes worth timing, the one measured best on an H200 first; all use the same packing."""
    check_rhs(n)
    best = dslash_shape(lattice, dtype, n, form)
    widest = 4 if dtype == np.complex64 else 2
    shapes = [best]
    for rhs in sorted({r for r in (1, 2, 4) if n % r == 0 and r <= widest}, reverse=True):
        for threads, resident in ((256, 512), (128, 512), (128, 640), (64, 640), (256, 768)):
            if threads >= n // rhs:
                shapes.append(_shape(lattice, dtype, n, rhs, threads, resident))
    y_tiles, z_tiles = lattice.extents[1] // best.tile[1], lattice.extents[2] // best.tile[2]
    orders = [(best.y_chunk, 2 * best.z_chunk), (2 * best.y_chunk, best.z_chunk)]
    orders.append((best.y_chunk // 2, best.z_chunk))
    chunks = [replace(best, y_chunk=y, z_chunk=z) for y, z in orders if y and y_tiles % y == z_tiles % z == 0]
    fitting = [s for s in (best, *chunks, *shapes) if _fits(s, directions, dtype, n, form)]
    return tuple(dict.fromkeys(fitting))[:12]


def _fits(shape: DslashShape, directions: int, dtype: np.dtype, n: int, form: Form) -> bool:
    shared = form.shared_bytes(shape.sites_per_block, directions, dtype)
    return shared <= BLOCK_SHARED and shape.sites_per_block * (n // shape.rhs_per_thread) <= 1024


def links_form(dtype: np.dtype, n: int) -> Form:
    """Best storage, for `n` right-hand sides, of links that can be rebuilt from 13 reals.

    The barriers of rebuilding cost more than the bytes save where many right-hand sides share a link; in
    double even one right-hand side gains only 2 %.
    """
    return THIRTEEN if dtype == np.complex64 and n <= 8 else FULL


@tuned
def dslash(
    lattice: Lattice, directions: int, dtype: np.dtype, n: int, dots: bool = False, form: Form = FULL
) -> Options[DslashShape]:
    """The dslash of `hisq_dslash.cu`; with `dots` it sums conj(diagonal) out by block."""
    check_rhs(n)
    _check_index(lattice, dtype, n)
    return Options(
        candidates(lattice, directions, dtype, n, form),
        lambda shape: dslash_in_shape(lattice, directions, dtype, n, shape, dots, form),
    )


def dslash_in_shape(
    lattice: Lattice,
    directions: int,
    dtype: np.dtype,
    n: int,
    shape: DslashShape,
    dots: bool = False,
    form: Form = FULL,
) -> Launch:
    """The dslash in a given shape."""
    threads = shape.sites_per_block * (n // shape.rhs_per_thread)
    shared_bytes = form.shared_bytes(shape.sites_per_block, directions, dtype)
    resident_blocks = min(
        shape.resident_threads // 32 // ceil(threads / 32), MULTIPROCESSOR_SHARED // shared_bytes
    )
    min_blocks = max(1, resident_blocks)
    geometry = (extents_of(lattice), f"Tile<{listed(shape.tile)}>", form.links, form.x, form.out, directions)
    block = (n, shape.rhs_per_thread, shape.sites_per_block, min_blocks)
    order = (shape.y_chunk, shape.z_chunk, str(dots).lower())
    return Launch(
        "hisq_dslash.cu",
        instance("hisq_dslash", dtype, *geometry, *block, *order),
        (lattice.half_volume // shape.sites_per_block,),
        threads,
        shared_bytes,
    )


@cache
def half_conversion(sites: int, components: int, n: int, to_half: bool) -> Launch:
    """complex64 ``[sites, components, n]`` to 16 bits with a scale, or back; 3 or 12 components."""
    check_rhs(n)
    rhs = 4 if n % 4 == 0 and components == 3 else 2 if n % 2 == 0 else 1
    fields, values = ("Field", "ColorVectors") if components == 3 else ("Spinors", "Spinor")
    kinds = [f"Whole{fields}", f"Half{fields}"]
    arguments = listed((*(kinds if to_half else kinds[::-1]), f"{values}<float, {rhs}>", n, rhs))
    blocks = ceil(sites * (n // rhs) / BLOCK_THREADS)
    return Launch("half_convert.cu", f"convert<{arguments}>", (blocks,), BLOCK_THREADS)


def chunk(tiles: int, most: int) -> int:
    """The largest number up to `most`, and at least one, of tiles that divides them into whole chunks."""
    return max(d for d in divisors(tiles) if d <= max(1, most))


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
