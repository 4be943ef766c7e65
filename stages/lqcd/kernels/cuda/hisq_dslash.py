"""Links packed by tiles of sites; a block of threads keeps the neighbours of a tile in the first cache."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import cupy
import numpy as np

from stages.errors import InputError
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.half_field import codes_and_scales
from stages.lqcd.kernels.cuda.launch import columns
from stages.lqcd.kernels.cuda.launch import dslash as shapes
from stages.lqcd.kernels.cuda.launch.base import Launch
from stages.lqcd.kernels.directions import HISQ_DIRECTIONS
from stages.lqcd.kernels.half_field import HalfField
from stages.lqcd.lattice.geometry import Lattice


@dataclass(frozen=True)
class PackedLinks:
    """Direction-doubled, pre-daggered, signed links into the sites of `parity`, packed by tiles.

    `tiles` is ``[tile, direction, site in tile, 3, 3]``; tiles and sites in a tile number x fastest. The tile
    (`shapes.dslash_tile`) depends on the lattice alone: one packing serves every number of rhs.
    """

    lattice: Lattice
    parity: int
    directions: int
    dtype: np.dtype
    tiles: cupy.ndarray

    def in_form(self, form: shapes.Form) -> cupy.ndarray:
        """The links as a kernel of this form reads them."""
        links = self.with_13_reals if form.links == shapes.THIRTEEN.links else self.tiles
        if links is None:
            raise InputError("long links that are not real numbers times U(3) matrices need 18 reals each")
        return links

    def best_form(self, n: int) -> shapes.Form:
        """The form measured best for `n` right-hand sides that these links can take."""
        form = shapes.links_form(self.dtype, n)
        return shapes.FULL if form == shapes.THIRTEEN and self.with_13_reals is None else form

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
    tx, ty, tz, tt = shapes.dslash_tile(lattice)
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
    kernel = shapes.dslash(packed.lattice, packed.directions, packed.dtype, n, dots is not None, form)
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
        second = columns.sum_rows(kernel.grid[0], n)
        run(second, sums.blocks, sums.runs, sums.finished, dots, np.int32(kernel.grid[0]))
    return out


def _form(packed: PackedLinks, x: Any, out: Any) -> shapes.Form:
    if not isinstance(x, HalfField):
        return packed.best_form(x.shape[2])
    return shapes.HALF if isinstance(out, HalfField) else shapes.HALF_TO_SINGLE


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
    """Start a dslash of `shapes.dslash_in_shape` unchecked, as `hisq_dslash` does after its checks."""
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


_NULL = np.uintp(0)


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
    runs = columns.sum_rows(blocks, n).grid[0]
    return _Workspace(cupy.empty((blocks, n)), cupy.empty((runs, n)), cupy.zeros(4, np.uint32))
