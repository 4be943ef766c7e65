"""Links of the staggered dslash in the forms in which they are stored, a class each; most lie by tiles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import NamedTuple

import cupy
import numpy as np

from stages.lqcd.kernels.cuda import link_fields
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.fields import empty_field
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, BlockShape, Box, Launch, instance, nearest_box
from stages.lqcd.kernels.directions import HISQ_DIRECTIONS, NAIVE_DIRECTIONS
from stages.lqcd.kernels.link_forms import StaggeredForm
from stages.lqcd.kernels.short_numbers import ShortField
from stages.lqcd.lattice.geometry import Lattice

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
        lattice, directions, tile = fields.lattice, fields.directions, dslash_tile(fields.lattice)
        tiles = empty_field((lattice.half_volume // prod(tile), directions, prod(tile), 3, 3), dtype)
        link_fields.in_tiles(fields.one_hop, fields.three_hops, lattice, fields.parity, tiles, tile)
        return PackedLinks(lattice, fields.parity, directions, dtype, tiles)

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
