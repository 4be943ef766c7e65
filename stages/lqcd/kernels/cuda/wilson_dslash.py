"""Links packed by tiles of sites, in 18, 12 or 8 reals; a block of threads works on a tile."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cupy
import numpy as np

from stages.errors import InputError
from stages.lqcd.kernels.cuda.clover import PackedClover
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.half_field import codes_and_scales
from stages.lqcd.kernels.cuda.launch import wilson as shapes
from stages.lqcd.kernels.cuda.launch.base import Launch
from stages.lqcd.kernels.cuda.su3_links import ShortLinks, edges, eight_reals, two_rows
from stages.lqcd.kernels.directions import NAIVE_DIRECTIONS
from stages.lqcd.kernels.half_field import HalfField
from stages.lqcd.lattice.geometry import Lattice


@dataclass(frozen=True)
class PackedLinks:
    """Direction-doubled links into the sites of `parity`, packed by tiles, the backward ones as U^dag.

    `tiles` is ``[tile, direction, site in tile, 3, 3]``; tiles and sites in a tile number x fastest. The tile
    (`shapes.wilson_tile`) depends on the lattice alone: one packing serves every number of rhs.
    """

    lattice: Lattice
    parity: int
    dtype: np.dtype
    tiles: cupy.ndarray

    def in_form(self, form: shapes.LinksForm) -> tuple[cupy.ndarray, Any]:
        """The links as a kernel of this form reads them, and their factors (su3_links.cuh).

        Raises InputError where links are not SU(3) up to a weight of each direction and boundary signs.
        """
        if form == shapes.FULL:
            return self.tiles, _NULL
        short = {shapes.TWELVE: self.with_12_reals, shapes.EIGHT: self.with_8_reals}[form]
        if short is None:
            raise InputError("links that are not SU(3) up to a weight and a sign need 18 reals each")
        return short.links, short.factors

    def best_form(self, n: int, fields: shapes.Fields = shapes.WHOLE) -> shapes.LinksForm:
        """The form measured best for `n` right-hand sides that these links can take."""
        form = shapes.links_form(self.dtype, n, fields)
        return form if form == shapes.FULL or self.with_12_reals is not None else shapes.FULL

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
    tx, ty, tz, tt = shapes.wilson_tile(lattice)
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
    where = (
        shapes.HOP_CLOVER if hop_clover else shapes.DIAGONAL_CLOVER if diagonal_clover else shapes.NO_CLOVER
    )
    kernel = shapes.wilson_dslash(packed.lattice, packed.dtype, n, sign, where, form, fields)
    start(kernel, packed, form, x, out, diagonal, a, b, hop_clover or diagonal_clover)
    return out


def _fields(x: Any, out: Any) -> shapes.Fields:
    if not isinstance(x, HalfField):
        return shapes.WHOLE
    return shapes.HALF if isinstance(out, HalfField) else shapes.HALF_TO_SINGLE


def wilson_hop(
    packed: PackedLinks, direction: int, x: cupy.ndarray, out: cupy.ndarray, *, sign: int = 1
) -> cupy.ndarray:
    kernel = shapes.wilson_hop(packed.lattice, packed.dtype, x.shape[2], direction, sign)
    run(kernel, packed.tiles, x, out, np.int32(packed.parity))
    return out


def start(
    kernel: Launch,
    packed: PackedLinks,
    form: shapes.LinksForm,
    x: cupy.ndarray | HalfField,
    out: cupy.ndarray | HalfField,
    diagonal: cupy.ndarray | None = None,
    a: float = 0.0,
    b: float = 1.0,
    clover: PackedClover | None = None,
) -> None:
    """Start a dslash of `shapes.wilson_in_shape` unchecked, as `wilson_dslash` does after its checks."""
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


_NULL = np.uintp(0)
