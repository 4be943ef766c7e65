"""Links packed by tiles of sites, in 18, 12 or 8 reals; a block of threads works on a tile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import ceil, prod
from typing import Any

import cupy
import numpy as np

from stages.errors import InputError
from stages.lqcd.kernels.cuda.clover import PackedClover
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.half_field import codes_and_scales
from stages.lqcd.kernels.cuda.launch import (
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
from stages.lqcd.kernels.cuda.su3_links import ShortLinks, edges, eight_reals, two_rows
from stages.lqcd.kernels.cuda.tiles import INDEX_LIMIT, Box, DslashShape, chunk, nearest_box
from stages.lqcd.kernels.cuda.tuning.choice import Arguments, Options, tuned
from stages.lqcd.kernels.directions import NAIVE_DIRECTIONS
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.kernels.half_field import HalfField
from stages.lqcd.lattice.geometry import Lattice

_NULL = np.uintp(0)

TILE: Box = (2, 4, 2, 2)
"""The tile wished for, in (x / 2, y, z, t): its 32 sites read 128 neighbours."""

CLOVER_REALS = 72
"""Of a site's two Hermitian 6 x 6 matrices."""

NO_CLOVER, HOP_CLOVER, DIAGONAL_CLOVER = 0, 1, 2
"""What clover matrices multiply, as in `wilson_dslash.cu`."""


@dataclass(frozen=True)
class LinksForm:
    """Storage of links (su3_links.cuh): complex numbers of a link, and of what is rebuilt from them."""

    name: str
    elements: int
    rebuilt: int = 0

    def __str__(self) -> str:
        return self.name

    def shared_bytes(self, sites: int, dtype: np.dtype) -> int:
        """Shared memory for the links of `sites` sites; rebuilt ones are those of one direction at a time."""
        return sites * (NAIVE_DIRECTIONS * self.elements + 2 * self.rebuilt) * dtype.itemsize


FULL = LinksForm("SU3Links18", 9)

TWELVE = LinksForm("SU3Links12", 6)

EIGHT = LinksForm("SU3Links8", 4, 6)


@dataclass(frozen=True)
class Fields:
    """Storage of x and out: complex numbers ("Whole"), or 16 bits and a scale ("Half", links complex64)."""

    x: str = "Whole"
    out: str = "Whole"

    def __str__(self) -> str:
        return f"{self.x}-{self.out}"


WHOLE, HALF, HALF_TO_SINGLE = Fields(), Fields("Half", "Half"), Fields("Half", "Whole")


@dataclass(frozen=True)
class PackedLinks:
    """Direction-doubled links into the sites of `parity`, packed by tiles, the backward ones as U^dag.

    `tiles` is ``[tile, direction, site in tile, 3, 3]``; tiles and sites in a tile number x fastest. The tile
    (`wilson_tile`) depends on the lattice alone: one packing serves every number of rhs.
    """

    lattice: Lattice
    parity: int
    dtype: np.dtype
    tiles: cupy.ndarray

    def in_form(self, form: LinksForm) -> tuple[cupy.ndarray, Any]:
        """The links as a kernel of this form reads them, and their factors (su3_links.cuh).

        Raises InputError where links are not SU(3) up to a weight of each direction and boundary signs.
        """
        if form == FULL:
            return self.tiles, _NULL
        short = {TWELVE: self.with_12_reals, EIGHT: self.with_8_reals}[form]
        if short is None:
            raise InputError("links that are not SU(3) up to a weight and a sign need 18 reals each")
        return short.links, short.factors

    def best_form(self, n: int, fields: Fields = WHOLE) -> LinksForm:
        """The form measured best for `n` right-hand sides that these links can take."""
        form = links_form(self.dtype, n, fields)
        return form if form == FULL or self.with_12_reals is not None else FULL

    @cached_property
    def with_12_reals(self) -> ShortLinks | None:
        """Two rows of each link, made on demand; None where the third does not follow from them."""
        return two_rows(self.tiles, self._crossing)

    @cached_property
    def with_8_reals(self) -> ShortLinks | None:
        """8 reals of each link, made on demand; None where they do not give the link."""
        return eight_reals(self.tiles, self._crossing)

    @property
    def _crossing(self) -> cupy.ndarray:
        return _by_tiles(edges(self.lattice, self.parity)[:, :, None], self.lattice)[..., 0]


def pack(links: cupy.ndarray, lattice: Lattice, parity: int) -> PackedLinks:
    tiles = _by_tiles(links.reshape(-1, NAIVE_DIRECTIONS, 9), lattice)
    tiles[:, 1::2] *= -1  # doubled links carry a minus sign backward
    return PackedLinks(lattice, parity, np.dtype(links.dtype), tiles.reshape(*tiles.shape[:-1], 3, 3))


def _by_tiles(values: cupy.ndarray, lattice: Lattice) -> cupy.ndarray:
    """``[site, direction, k]`` as ``[tile, direction, site in tile, k]``, a copy."""
    x, y, z, t = lattice.extents
    tx, ty, tz, tt = wilson_tile(lattice)
    boxes = values.reshape(t // tt, tt, z // tz, tz, y // ty, ty, x // 2 // tx, tx, NAIVE_DIRECTIONS, -1)
    tiles = boxes.transpose(0, 2, 4, 6, 8, 1, 3, 5, 7, 9).copy()
    return tiles.reshape(-1, NAIVE_DIRECTIONS, tx * ty * tz * tt, values.shape[2])


def wilson_dslash(
    packed: PackedLinks,
    x: cupy.ndarray | HalfField,
    out: cupy.ndarray | HalfField,
    *,
    sign: int = 1,
    diagonal: cupy.ndarray | None = None,
    a: float = 0.0,
    b: float = 1.0,
    hop_clover: PackedClover | None = None,
    diagonal_clover: PackedClover | None = None,
) -> cupy.ndarray | HalfField:
    n, fields = x.shape[2], _fields(x, out)
    form = packed.best_form(n, fields)
    where = HOP_CLOVER if hop_clover else DIAGONAL_CLOVER if diagonal_clover else NO_CLOVER
    kernel = wilson_dslash_launch(packed.lattice, packed.dtype, n, sign, where, form, fields)
    start(kernel, packed, form, x, out, diagonal, a, b, hop_clover or diagonal_clover)
    return out


def _fields(x: Any, out: Any) -> Fields:
    if not isinstance(x, HalfField):
        return WHOLE
    return HALF if isinstance(out, HalfField) else HALF_TO_SINGLE


def wilson_hop(
    packed: PackedLinks, direction: int, x: cupy.ndarray, out: cupy.ndarray, *, sign: int = 1
) -> cupy.ndarray:
    kernel = wilson_hop_launch(packed.lattice, packed.dtype, x.shape[2], direction, sign)
    run(kernel, packed.tiles, x, out, np.int32(packed.parity))
    return out


def start(
    kernel: Launch,
    packed: PackedLinks,
    form: LinksForm,
    x: cupy.ndarray | HalfField,
    out: cupy.ndarray | HalfField,
    diagonal: cupy.ndarray | None = None,
    a: float = 0.0,
    b: float = 1.0,
    clover: PackedClover | None = None,
) -> None:
    """Start a dslash of `wilson_in_shape` unchecked, as `wilson_dslash` does after its checks."""
    real = packed.tiles.real.dtype.type
    run(
        kernel,
        *packed.in_form(form),
        *codes_and_scales(x),
        _NULL if clover is None else clover.matrices,
        _NULL if diagonal is None else diagonal,
        *codes_and_scales(out),
        real(a),
        real(b),
        np.int32(packed.parity),
    )


@cache
def wilson_tile(lattice: Lattice) -> Box:
    """The tile in which links are packed: it divides the lattice and has up to 32 sites, shaped as TILE."""
    return nearest_box(lattice, TILE)


def wilson_shape(
    lattice: Lattice,
    dtype: np.dtype,
    n: int,
    clover: int = NO_CLOVER,
    form: LinksForm = FULL,
    fields: Fields = WHOLE,
) -> DslashShape:
    """The shape measured best for this precision, number of right-hand sides and forms."""
    if dtype == np.complex128:
        rhs, threads, resident = 1, 128, 384 if n < 16 else 512
    elif fields.x == "Half":
        rhs, threads, resident = (2, BLOCK_THREADS, 512) if n % 2 == 0 and n >= 16 else (1, 128, 768)
    elif n < 16 or n % 2:
        rhs, threads, resident = (1, BLOCK_THREADS, 512) if form == FULL else (1, 128, 384)
    elif form != FULL:
        rhs, threads, resident = 2, BLOCK_THREADS, 512
    elif n < 32:
        rhs, threads, resident = (2, 128, 384) if clover else (1, 128, 640)
    else:
        rhs, threads, resident = (1, 128, 640) if clover else (1, BLOCK_THREADS, 768)
    return _shape(lattice, dtype, n, fields, rhs, threads, resident)


def _shape(
    lattice: Lattice, dtype: np.dtype, n: int, fields: Fields, rhs: int, threads: int, resident: int
) -> DslashShape:
    """Blocks of up to `threads` threads; the wider the fields, the fewer sites a chunk of the order has."""
    tile = wilson_tile(lattice)
    sites = max(s for s in divisors(prod(tile)) if s == 1 or s * (n // rhs) <= threads)
    width = n * (4 if fields.x == "Half" else dtype.itemsize)
    y_sites, z_sites = 32 if width <= 64 else 16 if width < 256 else 8, 8
    y_chunk = chunk(lattice.extents[1] // tile[1], y_sites // tile[1])
    z_chunk = chunk(lattice.extents[2] // tile[2], z_sites // tile[2])
    return DslashShape(tile, rhs, sites, y_chunk, z_chunk, resident)


def links_form(dtype: np.dtype, n: int, fields: Fields = WHOLE) -> LinksForm:
    """Best storage of links of SU(3) for `n` right-hand sides.

    Rebuilding rows gains nothing where arithmetic bounds the kernel, as it does with fields of 16 bits.
    """
    if fields.x == "Half":
        return FULL
    if dtype == np.complex64:
        return TWELVE if n <= 16 else FULL
    return TWELVE if 1 < n < 16 else FULL


def candidates(
    lattice: Lattice, dtype: np.dtype, n: int, clover: int, form: LinksForm, fields: Fields
) -> tuple[DslashShape, ...]:
    """Up to 12 shapes worth timing, the one measured best on an H200 first; all use the same packing."""
    check_rhs(n)
    best = wilson_shape(lattice, dtype, n, clover, form, fields)
    shapes = [best]
    for rhs in (1, 2) if dtype == np.complex64 and n % 2 == 0 else (1,):
        for threads, resident in ((256, 768), (128, 640), (256, 512), (128, 384)):
            if threads >= n // rhs:
                shapes.append(_shape(lattice, dtype, n, fields, rhs, threads, resident))
    y_tiles, z_tiles = lattice.extents[1] // best.tile[1], lattice.extents[2] // best.tile[2]
    orders = (
        (best.y_chunk, 2 * best.z_chunk),
        (2 * best.y_chunk, best.z_chunk),
        (best.y_chunk // 2, best.z_chunk),
    )
    chunks = [replace(best, y_chunk=y, z_chunk=z) for y, z in orders if y and y_tiles % y == z_tiles % z == 0]
    fitting = [
        s
        for s in (best, *chunks, *shapes)
        if _shared_bytes(s, dtype, clover, form) <= BLOCK_SHARED
        and s.sites_per_block * (n // s.rhs_per_thread) <= 1024
    ]
    return tuple(dict.fromkeys(fitting))[:12]


def _narrowed(arguments: Arguments) -> Arguments:
    """With the form that links of SU(3) take for the number of right-hand sides among these."""
    return {**arguments, "form": links_form(arguments["dtype"], arguments["n"], arguments["fields"])}


@partial(tuned, narrowed=_narrowed)
def wilson_dslash_launch(
    lattice: Lattice,
    dtype: np.dtype,
    n: int,
    sign: int = 1,
    clover: int = NO_CLOVER,
    form: LinksForm = FULL,
    fields: Fields = WHOLE,
) -> Options[DslashShape]:
    """The dslash of `wilson_dslash.cu`."""
    check_rhs(n)
    check_index(lattice, n)
    return Options(
        candidates(lattice, dtype, n, clover, form, fields),
        lambda shape: wilson_in_shape(lattice, dtype, n, shape, sign, clover, form, fields),
    )


def wilson_in_shape(
    lattice: Lattice,
    dtype: np.dtype,
    n: int,
    shape: DslashShape,
    sign: int,
    clover: int,
    form: LinksForm,
    fields: Fields = WHOLE,
) -> Launch:
    """The dslash in a given shape."""
    threads = shape.sites_per_block * (n // shape.rhs_per_thread)
    shared_bytes = _shared_bytes(shape, dtype, clover, form)
    resident_blocks = min(
        shape.resident_threads // 32 // ceil(threads / 32), MULTIPROCESSOR_SHARED // shared_bytes
    )
    geometry = (extents_of(lattice), f"Tile<{listed(shape.tile)}>", form.name, fields.x, fields.out)
    block = (sign, clover, n, shape.rhs_per_thread, shape.sites_per_block, max(1, resident_blocks))
    return Launch(
        "wilson_dslash.cu",
        instance("wilson_dslash", dtype, *geometry, *block, shape.y_chunk, shape.z_chunk),
        (lattice.half_volume // shape.sites_per_block,),
        threads,
        shared_bytes,
        for_lattice=True,
    )


def _shared_bytes(shape: DslashShape, dtype: np.dtype, clover: int, form: LinksForm) -> int:
    """Links and, if there are any, clover matrices of a block's sites."""
    matrices = CLOVER_REALS * dtype.itemsize // 2 if clover else 0
    return form.shared_bytes(shape.sites_per_block, dtype) + matrices * shape.sites_per_block


@cache
def wilson_hop_launch(lattice: Lattice, dtype: np.dtype, n: int, direction: int, sign: int) -> Launch:
    """The term of one direction, a thread per site and right-hand side."""
    check_rhs(n)
    check_index(lattice, n)
    arguments = (extents_of(lattice), f"Tile<{listed(wilson_tile(lattice))}>", direction, sign, n)
    blocks = ceil(lattice.half_volume * n / 128)
    kernel = instance("wilson_hop", dtype, *arguments)
    return Launch("wilson_dslash.cu", kernel, (blocks,), 128, for_lattice=True)


def check_index(lattice: Lattice, n: int) -> None:
    """Raise InputError where a field has more numbers than the kernels count with 32 bits."""
    most = (INDEX_LIMIT - 1) // (lattice.half_volume * COMPONENTS)
    if n > most:
        remedy = f"fewer right-hand sides, {most} at a time" if most else "a smaller lattice"
        raise InputError(
            f"a spinor field of {n} right-hand sides on the lattice {lattice} has more numbers than the CUDA "
            f"dslash counts, 2^32 on a parity: take {remedy}"
        )
