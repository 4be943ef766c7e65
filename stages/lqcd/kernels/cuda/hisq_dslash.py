"""Staggered dslash, links in one of four forms; a block keeps the neighbours of a tile in the first cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from math import ceil, prod
from typing import Any, NamedTuple

import cupy
import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.cuda import link_fields
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.group import Grids, grids_of, on_each_device
from stages.lqcd.kernels.cuda.devices.partition import REACH, PartialWork
from stages.lqcd.kernels.cuda.fields import empty_field
from stages.lqcd.kernels.cuda.launch import (
    BLOCK_THREADS,
    INDEX_LIMIT,
    MULTIPROCESSORS,
    BlockShape,
    Box,
    DslashShape,
    Launch,
    check_rhs,
    instance,
    narrowable,
    nearest_box,
    power_of_two,
)
from stages.lqcd.kernels.directions import HISQ_DIRECTIONS, NAIVE_DIRECTIONS, SPATIAL_DIRECTIONS
from stages.lqcd.kernels.link_forms import StaggeredForm
from stages.lqcd.kernels.short_numbers import ShortField
from stages.lqcd.lattice.geometry import Lattice

_NULL = np.uintp(0)

REACHES = {HISQ_DIRECTIONS: REACH, NAIVE_DIRECTIONS: 1, SPATIAL_DIRECTIONS: 0}
"""Slices that the hops of a dslash with so many neighbours go in t."""

TILE: Box = (4, 4, 2, 1)
"""The tile wished for, in (x / 2, y, z, t): 32 sites, 36 KB of links in single precision."""


class LinkFields(NamedTuple):
    """Fields of links, complex128 ``[mu, parity, site, 3, 3]``, to be packed into the sites of `parity`."""

    one_hop: cupy.ndarray
    three_hops: cupy.ndarray | None
    lattice: Lattice
    parity: int

    @property
    def directions(self) -> int:
        return NAIVE_DIRECTIONS if self.three_hops is None else HISQ_DIRECTIONS


@dataclass(frozen=True)
class Links18:
    """Matrices, doubled and signed, ``[tile, direction, site in tile, 3, 3]``.

    Tiles and sites in a tile number x fastest. A form is named as its class in links.cuh or own_links.cuh, a
    template argument of `hisq_dslash.cu`; x and out are how it takes fields.
    """

    x = "Whole"
    short = False

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def out(self) -> str:
        return "Whole"

    def into(self, out: cupy.ndarray | ShortField) -> Links18:
        """The form for products that are stored in `out`."""
        return self

    def pack(self, fields: LinkFields, dtype: np.dtype) -> PackedLinks:
        """Links of fields in this form, or as matrices where it is not for them."""
        one_hop, three_hops, lattice, parity = fields
        tiles = _tiles(lattice, fields.directions, dtype)
        link_fields.in_tiles(one_hop, three_hops, lattice, parity, tiles, dslash_tile(lattice))
        return PackedLinks(lattice, parity, fields.directions, dtype, tiles)

    def shared_bytes(self, sites: int, directions: int, dtype: np.dtype) -> int:
        """Shared memory for the links of `sites` sites, as SHARED_BYTES of links.cuh."""
        return sites * directions * 9 * dtype.itemsize

    def shape(self, dtype: np.dtype, n: int) -> BlockShape:
        """The shape of blocks of a product."""
        if dtype == np.complex128:
            return (2, 128, 512) if n % 2 == 0 and n >= 16 else (1, 128, 640)
        if n % 2 or n <= 8:
            return 2 if n % 2 == 0 else 1, BLOCK_THREADS, 512
        if n % 32 == 0:
            return 4, BLOCK_THREADS, 512
        return (2, BLOCK_THREADS, 768) if n <= 16 else (2, 128, 640) if n <= 32 else (2, 192, 768)


@dataclass(frozen=True)
class LinksInFields(Links18):
    """The field of one hop, ``[mu, parity, site, 3, 3]``, and beside it that of three: nothing is packed."""

    def pack(self, fields: LinkFields, dtype: np.dtype) -> PackedLinks:
        one_hop, three_hops, lattice, parity = fields
        return PackedLinks(lattice, parity, fields.directions, one_hop.dtype, one_hop, self, three_hops)


@dataclass(frozen=True)
class Links9(Links18):
    """Fat links and nine numbers of each long one, ``[tile, mu, reals]`` as own_links.cuh has them.

    A long link is the field's `scale` times a U(3) matrix. Threads read links of their own.
    """

    def pack(self, fields: LinkFields, dtype: np.dtype) -> PackedLinks:
        """Matrices where long links are not one real number times U(3) matrices, to 64 roundings."""
        matrices = FULL.pack(fields, dtype)
        count, _, sites = matrices.links.shape[:3]
        real = np.float32 if dtype == np.complex64 else np.float64
        shorter, found = self._room(count, sites, real), cupy.zeros(2)
        run(nine_links_launch(count, sites, dtype, self.short), shorter, matrices.links, found)
        scale, worst = found.tolist()
        if not worst <= 64 * np.finfo(real).eps:
            return matrices
        return replace(matrices, links=shorter, form=self, scale=scale)

    def _room(self, tiles: int, sites: int, real: type[np.floating]) -> cupy.ndarray:
        return empty_field((tiles, 4, 54 * sites), real)

    def shared_bytes(self, sites: int, directions: int, dtype: np.dtype) -> int:
        return 0

    def shape(self, dtype: np.dtype, n: int) -> BlockShape:
        return (2 if n % 2 == 0 and n > 2 else 1), BLOCK_THREADS, 512


@dataclass(frozen=True)
class ShortLinks9(Links9):
    """Links for short fields: numbers of fat ones in 20 bits, nine angles of each long one in 16.

    uint32 ``[tile, mu, words]`` as own_links.cuh has them. out_bits: of the codes of results.
    """

    out_bits: int = 16

    x = "Short<Short16>"
    short = True

    @property
    def out(self) -> str:
        return f"Short<Short{self.out_bits}>"

    def into(self, out: cupy.ndarray | ShortField) -> Links18:
        return replace(self, out_bits=out.bits)

    def _room(self, tiles: int, sites: int, real: type[np.floating]) -> cupy.ndarray:
        return empty_field((tiles, 4, 32 * sites), np.uint32)

    def shape(self, dtype: np.dtype, n: int) -> BlockShape:
        if n in (1, 2, 4):
            return n, BLOCK_THREADS if n == 1 else 32, {1: 768, 2: 384, 4: 512}[n]
        return super().shape(dtype, n)


FULL, NINE, SHORT_NINE, IN_FIELDS = Links18(), Links9(), ShortLinks9(), LinksInFields()

FORMS = {
    StaggeredForm.MATRICES: FULL,
    StaggeredForm.NINE_REALS: NINE,
    StaggeredForm.SHORT: SHORT_NINE,
    StaggeredForm.IN_FIELDS: IN_FIELDS,
}


@dataclass(frozen=True)
class PackedLinks:
    """Links into the sites of `parity` as a form stores them.

    The tile (`dslash_tile`) depends on the lattice only: one packing serves every number of right-hand sides.
    """

    lattice: Lattice
    parity: int
    directions: int
    dtype: np.dtype
    links: cupy.ndarray
    form: Links18 = FULL
    three_hops: cupy.ndarray | None = None
    scale: float = 1.0

    @property
    def short(self) -> bool:
        return self.form.short


@cache
def dslash_tile(lattice: Lattice) -> Box:
    """The tile in which links are packed: it divides the lattice, has up to 32 sites and is shaped as TILE.

    It depends on the extents only: one packing serves every number of right-hand sides and both precisions.
    """
    return nearest_box(lattice, TILE)


@cache
def nine_links_launch(tiles: int, sites: int, dtype: np.dtype, short: bool) -> Launch:
    """Long links in nine numbers from tiles of so many sites; grid (tiles, mu)."""
    kernel = f"short_nine_links<{sites}>" if short else instance("nine_links", dtype, sites)
    return Launch("nine_links.cu", kernel, (tiles, 4), 64)


def pack_spatial(links: cupy.ndarray, lattice: Lattice, parity: int, dtype: np.dtype) -> PackedLinks:
    tile, numbers = dslash_tile(lattice), cupy.ones(12)
    tiles = _tiles(lattice, SPATIAL_DIRECTIONS, dtype)
    link_fields.weighted_in_tiles(links.astype(complex, copy=False), numbers, lattice, parity, tiles, tile)
    return PackedLinks(lattice, parity, SPATIAL_DIRECTIONS, dtype, tiles)


def _tiles(lattice: Lattice, directions: int, dtype: np.dtype) -> cupy.ndarray:
    """Room for matrices by tiles."""
    sites = prod(dslash_tile(lattice))
    return empty_field((lattice.half_volume // sites, directions, sites, 3, 3), dtype)


def pack_fields(
    one_hop: cupy.ndarray,
    three_hops: cupy.ndarray | None,
    lattice: Lattice,
    parity: int,
    dtype: np.dtype,
    form: StaggeredForm = StaggeredForm.MATRICES,
) -> PackedLinks:
    return FORMS[form].pack(LinkFields(one_hop, three_hops, lattice, parity), dtype)


def hisq_dslash(
    packed: PackedLinks,
    x: cupy.ndarray | ShortField,
    out: cupy.ndarray | ShortField,
    *,
    diagonal: cupy.ndarray | ShortField | None = None,
    a: float = 0.0,
    b: float = 1.0,
    dots: cupy.ndarray | None = None,
) -> cupy.ndarray | ShortField:
    n, form = x.shape[2], packed.form.into(out)
    kernel = dslash_launch(packed.lattice, packed.directions, packed.dtype, n, dots is not None, form)
    sums = () if dots is None else on_each_device(partial(_sums, kernel, n, grids_of(kernel)))
    fields = map(_or_null, (packed.three_hops, x, diagonal, out, sums[0] if sums else None))
    real = packed.dtype.type(0).real.dtype.type
    run(kernel, packed.links, *fields, real(a), real(b), np.int32(packed.parity), real(packed.scale))
    if sums:
        blocks, runs, finished, count = sums
        run(sum_rows_launch(kernel.grid[0], n), blocks, runs, finished, dots, count)
    return out


def _or_null(field: cupy.ndarray | ShortField | None) -> Any:
    """The array of a field as a kernel takes it."""
    return _NULL if field is None else field.words if isinstance(field, ShortField) else field


Sums = tuple[cupy.ndarray, cupy.ndarray, cupy.ndarray, np.int32]


def _sums(kernel: Launch, n: int, grids: Grids, part: int) -> Sums:
    """Partial sums of a dslash's blocks and of `sum_rows`, its count of finished blocks, and their number.

    As in `grid_sums`, dslashes of one process share them and must run in one stream; here that takes one
    thread, too, for two kernels meet in the first.
    """
    workspace = _workspace(kernel.grid[0], n, cupy.cuda.get_device_id(), part)
    return *workspace, np.int32(grids(part)[0])


@cache
def _workspace(
    blocks: int, n: int, device: int, part: int
) -> tuple[cupy.ndarray, cupy.ndarray, cupy.ndarray]:
    runs = sum_rows_launch(blocks, n).grid[0]
    return cupy.empty((blocks, n)), cupy.empty((runs, n)), cupy.zeros(4, np.uint32)


@cache
def sum_rows_launch(count: int, n: int) -> Launch:
    """The second stage of a reduction with `count` (thousands of) partial sums, float64 ``[count, n]``."""
    groups = power_of_two(512 // n)
    blocks = min(ceil(count / (4 * groups)), MULTIPROCESSORS)
    return Launch(
        "sum_rows.cu", f"sum_rows<{n}, {groups}>", (blocks,), n * groups, work=PartialWork(numbers=n)
    )


def dslash_shape(lattice: Lattice, dtype: np.dtype, n: int, form: Links18 = FULL) -> DslashShape:
    """The shape measured best; the wider the fields, the fewer sites a chunk of the order has."""
    width = n * dtype.itemsize
    chunks = 32 if width <= 128 else 16 if width < 512 else 8, 16 if width <= 64 else 8
    return DslashShape.of(lattice, dslash_tile(lattice), n, form.shape(dtype, n), chunks)


@narrowable
def dslash_launch(
    lattice: Lattice, directions: int, dtype: np.dtype, n: int, dots: bool = False, form: Links18 = FULL
) -> Launch:
    """The dslash of `hisq_dslash.cu`; with `dots` it sums conj(diagonal) out by block."""
    check_rhs(n)
    _check_index(lattice, dtype, n)
    shape, reach = dslash_shape(lattice, dtype, n, form), REACHES[directions]
    shared_bytes = form.shared_bytes(shape.sites_per_block, directions, dtype)
    kinds = (form.name, form.x, form.out, directions)
    return shape.launch("hisq_dslash", dtype, shared_bytes, reach, kinds, (str(dots).lower(),))


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
