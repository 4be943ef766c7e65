"""Links packed by tiles of sites, in 18 or 12 reals, or as they lie; a block of threads works on a tile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, prod
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels.clover import MATRIX_REALS
from stages.lqcd.kernels.cuda.clover import PackedClover
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.fields import empty_field
from stages.lqcd.kernels.cuda.launch import (
    BLOCK_THREADS,
    INDEX_LIMIT,
    BlockShape,
    Box,
    DslashShape,
    Launch,
    check_rhs,
    extents_of,
    instance,
    listed,
    narrowable,
    nearest_box,
)
from stages.lqcd.kernels.cuda.link_fields import weighted_in_tiles
from stages.lqcd.kernels.cuda.short_numbers import codes_and_scales
from stages.lqcd.kernels.directions import NAIVE_DIRECTIONS
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.kernels.link_forms import WilsonForm
from stages.lqcd.kernels.short_numbers import HalfField
from stages.lqcd.kernels.wilson_dslash import Weights
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice

_NULL = np.uintp(0)

TILE: Box = (2, 4, 2, 2)
"""The tile wished for, in (x / 2, y, z, t): its 32 sites read 128 neighbours."""

NO_CLOVER, HOP_CLOVER, DIAGONAL_CLOVER = 0, 1, 2
"""What clover matrices multiply, as in `wilson_dslash.cu`; a launch takes that + 4 times their kind."""


@dataclass(frozen=True)
class Fields:
    """Storage of x and out: complex numbers ("Whole"), or 16 bits and a scale ("Half", links complex64)."""

    x: str = "Whole"
    out: str = "Whole"

    def __str__(self) -> str:
        return f"{self.x}-{self.out}"


WHOLE, HALF, HALF_TO_SINGLE = Fields(), Fields("Half", "Half"), Fields("Half", "Whole")


@dataclass(frozen=True)
class SU3Links18:
    """Matrices, weighted, U^dag backward, ``[tile, direction, site in tile, 3, 3]``.

    Tiles and sites in a tile number x fastest. A form is named as its class in su3_links.cuh.
    """

    elements = 9
    in_tiles = True

    @property
    def name(self) -> str:
        return type(self).__name__

    def pack(
        self, links: cupy.ndarray, weights: Weights, lattice: Lattice, parity: int, dtype: np.dtype
    ) -> PackedLinks:
        """Links of fields in this form, or as matrices where it is not for them."""
        tiles, _ = _weighted(links, np.array(weights), _signs(links, lattice), lattice, parity, dtype, rows=3)
        return PackedLinks(lattice, parity, dtype, tiles)

    def shared_bytes(self, sites: int, dtype: np.dtype) -> int:
        """Shared memory for the links of `sites` sites."""
        return sites * NAIVE_DIRECTIONS * self.elements * dtype.itemsize

    def single_shape(self, n: int, clover: int) -> BlockShape:
        """The shape of blocks in single precision."""
        if n < 16 or n % 2:
            return 1, BLOCK_THREADS, 512
        if n < 32:
            return (2, 128, 384) if clover else (1, 128, 640)
        return (1, 128, 640) if clover else (1, BLOCK_THREADS, 768)


@dataclass(frozen=True)
class SU3Links12(SU3Links18):
    """The first two rows of each link, of SU(3), and real factors of su3_links.cuh for the third."""

    elements = 6

    def pack(
        self, links: cupy.ndarray, weights: Weights, lattice: Lattice, parity: int, dtype: np.dtype
    ) -> PackedLinks:
        """Matrices where a third row does not follow from two to 32 roundings, as where a link is zero."""
        w, signs = np.array(weights), _signs(links, lattice)
        tiles, follows = _weighted(links, w, signs, lattice, parity, dtype, rows=2)
        if not follows:
            del tiles  # its memory is needed
            return FULL.pack(links, weights, lattice, parity, dtype)
        inside, edge = signs
        factors = cupy.asarray(np.concatenate([(inside / w).repeat(2), edge / inside]), tiles.real.dtype)
        return PackedLinks(lattice, parity, dtype, tiles, self, factors)

    def single_shape(self, n: int, clover: int) -> BlockShape:
        return (1, 128, 384) if n < 16 or n % 2 else (2, BLOCK_THREADS, 512)


@dataclass(frozen=True)
class SU3LinksInFields(SU3Links18):
    """The field ``[mu, parity, site, 3, 3]``; factors are the weights of directions. Nothing is packed."""

    in_tiles = False

    def pack(
        self, links: cupy.ndarray, weights: Weights, lattice: Lattice, parity: int, dtype: np.dtype
    ) -> PackedLinks:
        factors = cupy.asarray(np.repeat(weights, 2))
        return PackedLinks(lattice, parity, np.dtype(links.dtype), links, self, factors)


FULL, TWELVE, IN_FIELDS = SU3Links18(), SU3Links12(), SU3LinksInFields()

FORMS = {WilsonForm.MATRICES: FULL, WilsonForm.TWO_ROWS: TWELVE, WilsonForm.IN_FIELDS: IN_FIELDS}


@dataclass(frozen=True)
class PackedLinks:
    """Links into the sites of `parity` as a form stores them; factors, real: as the form has them.

    The tile (`wilson_tile`) depends on the lattice only: one packing serves every number of right-hand sides.
    """

    lattice: Lattice
    parity: int
    dtype: np.dtype
    links: cupy.ndarray
    form: SU3Links18 = FULL
    factors: cupy.ndarray | None = None

    @property
    def arguments(self) -> tuple[Any, Any]:
        """Links and factors as kernels take them."""
        return self.links, _NULL if self.factors is None else self.factors


def pack_fields(
    links: cupy.ndarray,
    weights: Weights,
    lattice: Lattice,
    parity: int,
    dtype: np.dtype,
    form: WilsonForm = WilsonForm.MATRICES,
) -> PackedLinks:
    return FORMS[form].pack(links, weights, lattice, parity, dtype)


def _weighted(
    links: cupy.ndarray,
    weights: NDArray[np.float64],
    signs: NDArray[np.float64],
    lattice: Lattice,
    parity: int,
    dtype: np.dtype,
    rows: int,
) -> tuple[cupy.ndarray, bool]:
    """Rows of links by tiles, weighted and doubled, and whether a third one follows from two."""
    tile = wilson_tile(lattice)
    shape = lattice.half_volume // prod(tile), NAIVE_DIRECTIONS, prod(tile), rows, 3
    tiles = empty_field(shape, dtype)
    numbers = cupy.asarray(np.concatenate([weights, *(signs / weights)]))
    return tiles, weighted_in_tiles(links, numbers, lattice, parity, tiles, tile)


def _signs(links: cupy.ndarray, lattice: Lattice) -> NDArray[np.float64]:
    """Signs s of links s U along each mu, within the lattice and across its edge, ``[2, mu]``.

    Of one link of each kind: whether they hold for all is for the caller. NaN where it is zero.
    """
    signs = np.empty((2, 4))
    for mu, extent in enumerate(lattice.extents):
        last = int(lattice.site((extent - 1) * np.eye(4, dtype=int)[mu]))  # an odd site: extents are even
        for at, link in enumerate((links[mu, EVEN, 0], links[mu, ODD, last])):
            first, second, third = cupy.asnumpy(link)
            cross = np.cross(first, second).conj()
            with np.errstate(invalid="ignore"):
                signs[at, mu] = (third * cross.conj()).sum().real / (abs(cross) ** 2).sum()
    return signs


def wilson_dslash(
    packed: PackedLinks,
    x: cupy.ndarray | HalfField,
    out: cupy.ndarray | HalfField,
    *,
    sign: int = 1,
    diagonal: cupy.ndarray | HalfField | None = None,
    a: float = 0.0,
    b: float = 1.0,
    clover: tuple[str, PackedClover] | None = None,
) -> cupy.ndarray | HalfField:
    n, form, fields, real = x.shape[2], packed.form, _fields(x, out), packed.links.real.dtype.type
    place, matrices = clover or ("", None)
    where = {"hop": HOP_CLOVER, "diagonal": DIAGONAL_CLOVER}.get(place, NO_CLOVER)
    where += 0 if matrices is None else 4 * matrices.kind
    run(
        wilson_dslash_launch(packed.lattice, packed.dtype, n, sign, where, form, fields),
        *packed.arguments,
        *codes_and_scales(x),
        _NULL if matrices is None else matrices.matrices,
        *codes_and_scales(diagonal),
        *codes_and_scales(out),
        real(a),
        real(b),
        np.int32(packed.parity),
    )
    return out


def _fields(x: Any, out: Any) -> Fields:
    if not isinstance(x, HalfField):
        return WHOLE
    return HALF if isinstance(out, HalfField) else HALF_TO_SINGLE


def wilson_hop(
    packed: PackedLinks, direction: int, x: cupy.ndarray, out: cupy.ndarray, *, sign: int = 1
) -> cupy.ndarray:
    if not packed.form.in_tiles:
        raise InputError("the term of one direction needs links in tiles: pack them")
    kernel = wilson_hop_launch(packed.lattice, packed.dtype, x.shape[2], direction, sign, packed.form)
    run(kernel, *packed.arguments, x, out, np.int32(packed.parity))
    return out


@cache
def wilson_tile(lattice: Lattice) -> Box:
    """The tile in which links are packed: it divides the lattice and has up to 32 sites, shaped as TILE."""
    return nearest_box(lattice, TILE)


def wilson_shape(
    lattice: Lattice,
    dtype: np.dtype,
    n: int,
    clover: int = NO_CLOVER,
    form: SU3Links18 = FULL,
    fields: Fields = WHOLE,
) -> DslashShape:
    """The shape measured best; the wider the fields, the fewer sites a chunk of the order has."""
    if dtype == np.complex128:
        block: BlockShape = 1, 128, 384 if n < 16 else 512
    elif fields.x == "Half":
        block = (2, BLOCK_THREADS, 512) if n % 2 == 0 and n >= 16 else (1, 128, 768)
    else:
        block = form.single_shape(n, clover)
    width = n * (4 if fields.x == "Half" else dtype.itemsize)
    chunks = 32 if width <= 64 else 16 if width < 256 else 8, 8
    return DslashShape.of(lattice, wilson_tile(lattice), n, block, chunks)


@narrowable
def wilson_dslash_launch(
    lattice: Lattice,
    dtype: np.dtype,
    n: int,
    sign: int = 1,
    clover: int = NO_CLOVER,
    form: SU3Links18 = FULL,
    fields: Fields = WHOLE,
) -> Launch:
    """The dslash of `wilson_dslash.cu`."""
    check_rhs(n)
    check_index(lattice, n)
    kinds = (fields.x, fields.out)
    return gathering_launch("wilson_dslash", lattice, dtype, n, clover, form, kinds, (sign, clover))


def gathering_launch(
    kernel: str,
    lattice: Lattice,
    dtype: np.dtype,
    n: int,
    clover: int,
    form: SU3Links18,
    fields: tuple[str, ...],
    choices: tuple[int, ...],
) -> Launch:
    """A kernel of the file of its name that gathers hops, in the shape of the Wilson dslash.

    fields, choices: its template arguments after the form of the links, x first and out last, and before the
    width.
    """
    shape = wilson_shape(lattice, dtype, n, clover, form, Fields(fields[0], fields[-1]))
    shared_bytes = shared_bytes_of(shape, dtype, clover, form)
    return shape.launch(kernel, dtype, shared_bytes, 1, (form.name, *fields, *choices))


def shared_bytes_of(shape: DslashShape, dtype: np.dtype, clover: int, form: SU3Links18) -> int:
    """Links and, if there are any, clover matrices of a block's sites."""
    matrices = MATRIX_REALS[clover // 4] * dtype.itemsize if clover else 0
    return form.shared_bytes(shape.sites_per_block, dtype) + matrices * shape.sites_per_block


@cache
def wilson_hop_launch(
    lattice: Lattice, dtype: np.dtype, n: int, direction: int, sign: int, form: SU3Links18 = FULL
) -> Launch:
    """The term of one direction, a thread per site and right-hand side."""
    check_rhs(n)
    check_index(lattice, n)
    arguments = (extents_of(lattice), f"Tile<{listed(wilson_tile(lattice))}>", form.name, direction, sign, n)
    threads = lattice.half_volume * n
    kernel, work = instance("wilson_hop", dtype, *arguments), RowWork(threads, 128)
    return Launch("wilson_dslash.cu", kernel, (ceil(threads / 128),), 128, for_lattice=True, work=work)


def check_index(lattice: Lattice, n: int) -> None:
    """Raise InputError where a field has more numbers than the kernels count with 32 bits."""
    most = (INDEX_LIMIT - 1) // (lattice.half_volume * COMPONENTS)
    if n > most:
        remedy = f"fewer right-hand sides, {most} at a time" if most else "a smaller lattice"
        raise InputError(
            f"a spinor field of {n} right-hand sides on the lattice {lattice} has more numbers than the CUDA "
            f"dslash counts, 2^32 on a parity: take {remedy}"
        )
