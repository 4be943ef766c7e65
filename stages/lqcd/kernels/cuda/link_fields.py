"""Signs, long links and direction-doubled links on a GPU, one thread a link."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import (
    BLOCK_THREADS,
    MULTIPROCESSORS,
    WARPS_THREADS,
    Box,
    Launch,
    instance,
    listed,
    on_lattice,
    warp_work,
)
from stages.lqcd.kernels.directions import HISQ_DIRECTIONS, NAIVE_DIRECTIONS
from stages.lqcd.lattice.geometry import Lattice


def in_tiles(
    fat: cupy.ndarray, long: cupy.ndarray | None, lattice: Lattice, parity: int, out: cupy.ndarray, tile: Box
) -> None:
    """Doubled links of `hisq_dslash.pack_fields` as ``[tile, direction, site in tile, 3, 3]``."""
    directions = NAIVE_DIRECTIONS if long is None else HISQ_DIRECTIONS
    kernel = doubled_links_launch(lattice, directions, out.dtype, tile)
    run(kernel, out, fat, np.uintp(0) if long is None else long, np.int32(parity))


def weighted_in_tiles(
    links: cupy.ndarray, numbers: cupy.ndarray, lattice: Lattice, parity: int, out: cupy.ndarray, tile: Box
) -> bool:
    """Weighted links of a Wilson-type operator as ``[tile, direction, site in tile, rows, 3]``.

    rows: 3 or the first 2. numbers: float64 ``[12]`` of `weighted_links` in `doubled_links.cu`. False where a
    third row does not follow from two to 32 roundings, as where a link is zero.
    """
    unfit = cupy.zeros(1, np.int32)
    kernel = weighted_links_launch(lattice, out.dtype, tile, out.shape[3], out.shape[1])
    limit = np.float64(32 * np.finfo(out.dtype).eps)
    run(kernel, out, links, numbers, np.int32(parity), limit, unfit)
    return out.shape[3] == 3 or not int(unfit[0])


@cache
def weighted_links_launch(
    lattice: Lattice, dtype: np.dtype, tile: Box, rows: int, directions: int = NAIVE_DIRECTIONS
) -> Launch:
    """Links of a Wilson-type operator into the sites of a parity, by tiles."""
    return _by_tiles("weighted_links", lattice, directions, dtype, tile, rows)


@cache
def doubled_links_launch(lattice: Lattice, directions: int, dtype: np.dtype, tile: Box) -> Launch:
    """Links into the sites of a parity, by tiles."""
    return _by_tiles("doubled_links", lattice, directions, dtype, tile)


def _by_tiles(
    kernel: str, lattice: Lattice, directions: int, dtype: np.dtype, tile: Box, *rows: int
) -> Launch:
    """A kernel of `doubled_links.cu`; grid (sites, directions)."""
    grid = (ceil(lattice.half_volume / WARPS_THREADS), directions)
    name = instance(kernel, dtype, listed(lattice.extents), f"Tile<{listed(tile)}>", *rows)
    work = warp_work(lattice)
    return Launch("doubled_links.cu", name, grid, WARPS_THREADS, for_lattice=True, work=work)


def long_links(links: cupy.ndarray, lattice: Lattice, coefficient: float, out: cupy.ndarray) -> None:
    real = np.float32 if out.dtype == np.complex64 else np.float64
    run(long_links_launch(lattice, out.dtype), out, links, real(coefficient))


@cache
def long_links_launch(lattice: Lattice, dtype: np.dtype) -> Launch:
    """Products of three links in a row; grid (sites, mu)."""
    blocks = ceil(lattice.volume / WARPS_THREADS)
    kernel = on_lattice("long_links", lattice, dtype)
    work = warp_work(lattice, parities=2)
    return Launch("long_links.cu", kernel, (blocks, 4), WARPS_THREADS, for_lattice=True, work=work)


def boundary_signs(
    links: cupy.ndarray, lattice: Lattice, directions: Sequence[int], out: cupy.ndarray, parity: int | None
) -> None:
    bits = np.uint32(sum(1 << mu for mu in directions))
    kernel = signs_launch("boundary_signs", lattice, out.dtype, 2 if parity is None else 1)
    run(kernel, out, links, *_points(lattice, parity), bits)


def staggered_phases(links: cupy.ndarray, lattice: Lattice, out: cupy.ndarray, parity: int | None) -> None:
    kernel = signs_launch("staggered_phases", lattice, out.dtype, 2 if parity is None else 1)
    run(kernel, out, links, *_points(lattice, parity))


def _points(lattice: Lattice, parity: int | None) -> tuple[np.uint32, np.uint32]:
    """First point and number of points of a direction."""
    if parity is None:
        return np.uint32(0), np.uint32(lattice.volume)
    return np.uint32(parity * lattice.half_volume), np.uint32(lattice.half_volume)


@cache
def signs_launch(kernel: str, lattice: Lattice, dtype: np.dtype, parities: int = 2) -> Launch:
    """`staggered_phases` or `boundary_signs` of links of one parity or both; grid (elements, mu)."""
    blocks = min(ceil(9 * lattice.volume / BLOCK_THREADS), 4 * MULTIPROCESSORS)
    instance, work = on_lattice(kernel, lattice, dtype), RowWork(lattice.half_volume, segments=parities)
    return Launch("signs.cu", instance, (blocks, 4), BLOCK_THREADS, for_lattice=True, work=work)
