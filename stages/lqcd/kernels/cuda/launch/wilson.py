"""Shapes of the Wilson dslash and of the products with clover matrices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from math import ceil, prod

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
from stages.lqcd.kernels.cuda.launch.dslash import INDEX_LIMIT, Box, DslashShape, chunk, nearest_box
from stages.lqcd.kernels.cuda.tuning.choice import Options, tuned
from stages.lqcd.kernels.directions import NAIVE_DIRECTIONS
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.lattice.geometry import Lattice

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


@tuned
def wilson_dslash(
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
    )


def _shared_bytes(shape: DslashShape, dtype: np.dtype, clover: int, form: LinksForm) -> int:
    """Links and, if there are any, clover matrices of a block's sites."""
    matrices = CLOVER_REALS * dtype.itemsize // 2 if clover else 0
    return form.shared_bytes(shape.sites_per_block, dtype) + matrices * shape.sites_per_block


@cache
def wilson_hop(lattice: Lattice, dtype: np.dtype, n: int, direction: int, sign: int) -> Launch:
    """The term of one direction, a thread per site and right-hand side."""
    check_rhs(n)
    check_index(lattice, n)
    arguments = (extents_of(lattice), f"Tile<{listed(wilson_tile(lattice))}>", direction, sign, n)
    blocks = ceil(lattice.half_volume * n / 128)
    return Launch("wilson_dslash.cu", instance("wilson_hop", dtype, *arguments), (blocks,), 128)


@cache
def clover_multiply(sites: int, dtype: np.dtype, n: int) -> Launch:
    """Products with clover matrices, a thread per site, chirality and one or two right-hand sides."""
    check_rhs(n)
    rhs = 2 if dtype == np.complex64 and n % 2 == 0 else 1
    blocks = ceil(2 * sites * (n // rhs) / BLOCK_THREADS)
    return Launch("clover.cu", instance("clover_multiply", dtype, n, rhs), (blocks,), BLOCK_THREADS)


def check_index(lattice: Lattice, n: int) -> None:
    """Raise InputError where a field has more numbers than the kernels count with 32 bits."""
    most = (INDEX_LIMIT - 1) // (lattice.half_volume * COMPONENTS)
    if n > most:
        remedy = f"fewer right-hand sides, {most} at a time" if most else "a smaller lattice"
        raise InputError(
            f"a spinor field of {n} right-hand sides on the lattice {lattice} has more numbers than the CUDA "
            f"dslash counts, 2^32 on a parity: take {remedy}"
        )
