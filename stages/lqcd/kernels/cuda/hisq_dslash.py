"""Links packed by tiles of sites; a block of threads keeps the neighbours of a tile in the first cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import ceil, prod
from typing import Any

import cupy
import numpy as np

from stages.errors import InputError
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.half_field import codes_and_scales
from stages.lqcd.kernels.cuda.launch import (
    BLOCK_SHARED,
    BLOCK_THREADS,
    MULTIPROCESSOR_SHARED,
    MULTIPROCESSORS,
    Launch,
    check_rhs,
    divisors,
    extents_of,
    instance,
    listed,
    power_of_two,
)
from stages.lqcd.kernels.cuda.tiles import INDEX_LIMIT, Box, DslashShape, chunk, nearest_box
from stages.lqcd.kernels.cuda.tuning.choice import Arguments, Options, tuned
from stages.lqcd.kernels.directions import HISQ_DIRECTIONS
from stages.lqcd.kernels.half_field import HalfField
from stages.lqcd.lattice.geometry import Lattice

_NULL = np.uintp(0)

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
class PackedLinks:
    """Direction-doubled, pre-daggered, signed links into the sites of `parity`, packed by tiles.

    `tiles` is ``[tile, direction, site in tile, 3, 3]``; tiles and sites in a tile number x fastest. The tile
    (`dslash_tile`) depends on the lattice alone: one packing serves every number of rhs.
    """

    lattice: Lattice
    parity: int
    directions: int
    dtype: np.dtype
    tiles: cupy.ndarray

    def in_form(self, form: Form) -> cupy.ndarray:
        """The links as a kernel of this form reads them."""
        links = self.with_13_reals if form.links == THIRTEEN.links else self.tiles
        if links is None:
            raise InputError("long links that are not real numbers times U(3) matrices need 18 reals each")
        return links

    def best_form(self, n: int) -> Form:
        """The form measured best for `n` right-hand sides that these links can take."""
        form = links_form(self.dtype, n)
        return FULL if form == THIRTEEN and self.with_13_reals is None else form

    @cached_property
    def with_13_reals(self) -> cupy.ndarray | None:
        """The links as Links13 of links.cuh, fat links, two rows and a phase of long ones; made on demand.

        None unless all long links are real numbers times U(3) matrices, as HISQ's are, to 32 roundings.
        """
        if self.directions != HISQ_DIRECTIONS:
            return None
        tiles, count, reals = self.tiles, len(self.tiles), self.tiles.real.dtype
        links = tiles.reshape(count, 4, 2, 2, -1, 3, 3)
        long = links[:, :, 1]
        phases = _third_row_phases(long)
        if phases is None:
            return None
        parts = (links[:, :, 0], long[..., :2, :], phases.astype(reals))
        return cupy.concatenate(
            [cupy.ascontiguousarray(part).view(reals).reshape(count, 4, -1) for part in parts], axis=2
        )


def pack(links: cupy.ndarray, lattice: Lattice, parity: int) -> PackedLinks:
    directions = links.shape[1]
    x, y, z, t = lattice.extents
    tx, ty, tz, tt = dslash_tile(lattice)
    boxes = links.reshape(t // tt, tt, z // tz, tz, y // ty, ty, x // 2 // tx, tx, directions, 9)
    tiles = cupy.ascontiguousarray(boxes.transpose(0, 2, 4, 6, 8, 1, 3, 5, 7, 9))
    packed = tiles.reshape(-1, directions, tx * ty * tz * tt, 3, 3)
    return PackedLinks(lattice, parity, directions, np.dtype(links.dtype), packed)


def _third_row_phases(links: cupy.ndarray) -> cupy.ndarray | None:
    """Phases over pi that make the third rows of ``[..., 3, 3]`` from the others; None if none do."""
    first, second, third = (links[..., row, :] for row in range(3))
    following, before = [1, 2, 0], [2, 0, 1]
    cross = first[..., following] * second[..., before] - first[..., before] * second[..., following]
    phases = cupy.angle((cross * third).sum(axis=-1, dtype=np.complex128))
    length = cupy.linalg.norm(first, axis=-1)[..., None]
    rebuilt = cupy.exp(1j * phases)[..., None] * cross.conj() / cupy.where(length == 0, 1, length)
    limit = 32 * np.finfo(links.dtype).eps
    fits = (cupy.abs(rebuilt - third) <= limit * length).all() and (length > 0).all()
    return phases / np.pi if fits else None


def hisq_dslash(
    packed: PackedLinks,
    x: cupy.ndarray | HalfField,
    out: cupy.ndarray | HalfField,
    *,
    diagonal: cupy.ndarray | None = None,
    a: float = 0.0,
    b: float = 1.0,
    dots: cupy.ndarray | None = None,
) -> cupy.ndarray | HalfField:
    n, form = x.shape[2], _form(packed, x, out)
    kernel = dslash_launch(packed.lattice, packed.directions, packed.dtype, n, dots is not None, form)
    sums = None if dots is None else _workspace(kernel.grid[0], n, cupy.cuda.get_device_id())
    start(
        kernel,
        packed.in_form(form),
        packed.parity,
        x,
        out,
        diagonal,
        a,
        b,
        None if sums is None else sums.blocks,
    )
    if sums is not None:
        second = sum_rows_launch(kernel.grid[0], n)
        run(second, sums.blocks, sums.runs, sums.finished, dots, np.int32(kernel.grid[0]))
    return out


def _form(packed: PackedLinks, x: Any, out: Any) -> Form:
    if not isinstance(x, HalfField):
        return packed.best_form(x.shape[2])
    return HALF if isinstance(out, HalfField) else HALF_TO_SINGLE


def start(
    kernel: Launch,
    links: cupy.ndarray,
    parity: int,
    x: cupy.ndarray | HalfField,
    out: cupy.ndarray | HalfField,
    diagonal: cupy.ndarray | None = None,
    a: float = 0.0,
    b: float = 1.0,
    block_sums: cupy.ndarray | None = None,
) -> None:
    """Start a dslash of `dslash_in_shape` unchecked, as `hisq_dslash` does after its checks."""
    real = links.real.dtype.type
    run(
        kernel,
        links,
        *codes_and_scales(x),
        _or_null(diagonal),
        *codes_and_scales(out),
        _or_null(block_sums),
        real(a),
        real(b),
        np.int32(parity),
    )


def _or_null(array: cupy.ndarray | None) -> Any:
    return _NULL if array is None else array


@dataclass(frozen=True)
class _Workspace:
    """Partial sums of the blocks of a dslash and of `sum_rows`, and the count of its finished blocks.

    As in `grid_sums`, dslashes of one process share them and must run in one stream; here that takes one
    thread, too, for two kernels meet in `blocks`.
    """

    blocks: cupy.ndarray
    runs: cupy.ndarray
    finished: cupy.ndarray


@cache
def _workspace(blocks: int, n: int, device: int) -> _Workspace:
    runs = sum_rows_launch(blocks, n).grid[0]
    return _Workspace(cupy.empty((blocks, n)), cupy.empty((runs, n)), cupy.zeros(4, np.uint32))


@cache
def sum_rows_launch(count: int, n: int) -> Launch:
    """The second stage of a reduction with `count` (thousands of) partial sums, float64 ``[count, n]``."""
    groups = power_of_two(512 // n)
    blocks = min(ceil(count / (4 * groups)), MULTIPROCESSORS)
    return Launch("sum_rows.cu", f"sum_rows<{n}, {groups}>", (blocks,), n * groups)


@cache
def dslash_tile(lattice: Lattice) -> Box:
    """The tile in which links are packed: it divides the lattice, has up to 32 sites and is shaped as TILE.

    It depends on the extents alone: one packing serves every number of right-hand sides and both precisions.
    """
    return nearest_box(lattice, TILE)


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


def _narrowed(arguments: Arguments) -> Arguments:
    """With the form that HISQ's links take for the number of right-hand sides among these."""
    if arguments["directions"] != HISQ_DIRECTIONS or arguments["form"].x == "Half":
        return arguments
    return {**arguments, "form": links_form(arguments["dtype"], arguments["n"])}


@partial(tuned, narrowed=_narrowed)
def dslash_launch(
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
