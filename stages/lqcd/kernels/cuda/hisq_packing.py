"""Links of the staggered dslash packed by tiles of sites, and the forms in which they are stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.fields import empty_field
from stages.lqcd.kernels.cuda.launch import Launch, instance
from stages.lqcd.kernels.cuda.tiles import Box, nearest_box
from stages.lqcd.kernels.directions import HISQ_DIRECTIONS
from stages.lqcd.kernels.hisq_dslash import FEW, NARROW
from stages.lqcd.lattice.geometry import Lattice

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
        if self.links in (THIRTEEN.links, FOURTEEN.links):
            reals = 2 * sites * (18 + 12 + 6 + (1 if self.links == THIRTEEN.links else 2))
            return 4 * (ceil(reals * dtype.itemsize / 2 / 16) * 16)
        if self.links in (NINE.links, SHORT_NINE.links):
            return 0
        return sites * directions * 9 * dtype.itemsize


FULL = Form("Links18")

THIRTEEN = Form("Links13")

FOURTEEN = Form("Links14")

IN_FIELDS = Form("LinksInFields")

NINE = Form("Links9")

SHORT_NINE = Form("ShortLinks9")

SHORT = Form("Links18", "Short<Short16>", "Short<Short16>")

TO_SHORT20 = Form("Links18", "Short<Short16>", "Short<Short20>")

WHOLE_TO_SHORT20 = Form("Links18", "Whole", "Short<Short20>")


@dataclass(frozen=True)
class PackedLinks:
    """Links into the sites of `parity` in one of six forms; those in tiles are doubled and signed.

    FULL: `links` is ``[tile, direction, site in tile, 3, 3]``; tiles and sites in a tile number x fastest.
    The tile (`dslash_tile`) depends on the lattice alone: one packing serves every number of rhs. THIRTEEN,
    in double FOURTEEN: reals of links.cuh, ``[tile, mu, reals]``: fat links, two rows of long ones, and one
    number or two for the third. NINE: fat links and nine numbers of each long one, which is `scale` times a
    U(3) matrix, as own_links.cuh has them, ``[tile, mu, reals]``; SHORT_NINE in uint32,
    ``[tile, mu, words]``, fat links with 20 bits a number, angles with 16. IN_FIELDS: the field of one hop,
    ``[mu, parity, site, 3, 3]``, beside which `three_hops` lies.
    """

    lattice: Lattice
    parity: int
    directions: int
    dtype: np.dtype
    links: cupy.ndarray
    form: Form = FULL
    three_hops: cupy.ndarray | None = None
    scale: float = 1.0


@cache
def dslash_tile(lattice: Lattice) -> Box:
    """The tile in which links are packed: it divides the lattice, has up to 32 sites and is shaped as TILE.

    It depends on the extents alone: one packing serves every number of right-hand sides and both precisions.
    """
    return nearest_box(lattice, TILE)


def form_of_links(directions: int, dtype: np.dtype, block: int, short: bool = False) -> Form:
    """The form of links, HISQ's if there are 16 directions, that is fastest for so many right-hand sides."""
    if directions != HISQ_DIRECTIONS or block > NARROW:
        return FULL
    if block <= FEW:
        return SHORT_NINE if short else NINE
    return THIRTEEN if dtype == np.complex64 else FOURTEEN


def in_form(packed: PackedLinks, form: Form) -> PackedLinks:
    """The links of FULL in another form of tiles; as they are where their long links do not allow it."""
    if form.links in (NINE.links, SHORT_NINE.links):
        return _in_nine_reals(packed, short=form.links == SHORT_NINE.links)
    return packed if form.links == FULL.links else _with_two_rows(packed)


def _with_two_rows(packed: PackedLinks) -> PackedLinks:
    """The links as THIRTEEN, in double as FOURTEEN.

    As they are unless all long links are real numbers times U(3) matrices, as HISQ's are, to 32 roundings.
    """
    single = packed.dtype == np.complex64
    count, sites, real = len(packed.links), packed.links.shape[2], np.float32 if single else np.float64
    shorter = empty_field((count, 4, 2 * sites * (18 + 12 + (1 if single else 2))), real)
    worst = cupy.zeros(1, np.float32)
    run(shorter_links_launch(count, sites, packed.dtype), shorter, packed.links, worst)
    if not float(worst[0]) <= 32 * np.finfo(real).eps:
        return packed
    return replace(packed, links=shorter, form=THIRTEEN if single else FOURTEEN)


@cache
def shorter_links_launch(tiles: int, sites: int, dtype: np.dtype) -> Launch:
    """Links whose long ones have two rows from tiles of so many sites; grid (tiles, mu)."""
    numbers = "float2, float" if dtype == np.complex64 else "double2, double2"
    return Launch("shorter_links.cu", f"shorter_links<{numbers}, {sites}>", (tiles, 4), 64)


def _in_nine_reals(packed: PackedLinks, short: bool) -> PackedLinks:
    """Links of FULL as NINE, or as SHORT_NINE.

    As they are unless all long links are one real number times U(3) matrices, as HISQ's are, to 64 roundings.
    """
    tiles, single = packed.links, packed.dtype == np.complex64
    count, sites, real = len(tiles), tiles.shape[2], np.float32 if single else np.float64
    shape = (count, 4, 32 * sites) if short else (count, 4, 54 * sites)
    shorter = empty_field(shape, np.uint32 if short else real)
    found = cupy.zeros(2)
    run(nine_links_launch(count, sites, packed.dtype, short), shorter, tiles, found)
    scale, worst = found.tolist()
    if not worst <= 64 * np.finfo(real).eps:
        return packed
    return replace(packed, links=shorter, form=SHORT_NINE if short else NINE, scale=scale)


@cache
def nine_links_launch(tiles: int, sites: int, dtype: np.dtype, short: bool) -> Launch:
    """Long links in nine numbers from tiles of so many sites; grid (tiles, mu)."""
    kernel = f"short_nine_links<{sites}>" if short else instance("nine_links", dtype, sites)
    return Launch("nine_links.cu", kernel, (tiles, 4), 64)
