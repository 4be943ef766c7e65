"""Shapes of the kernels on gauge links: two warps a block, each on 32 matrices at a time."""

from __future__ import annotations

from functools import cache
from math import ceil

import numpy as np

from stages.lqcd.kernels.cuda.launch.base import BLOCK_THREADS, MULTIPROCESSORS, Launch, listed, real_of
from stages.lqcd.lattice.geometry import Lattice

WARPS_THREADS = 64
"""More warps a block share nothing; fewer leave the block limit of a multiprocessor in the way."""

TILES = 6
"""Matrices per lane in shared memory while staples are summed: one staple arrives, one is used."""


@cache
def add_staple(lattice: Lattice, dtype: np.dtype) -> Launch:
    """Both staples around every link of a direction."""
    return _by_warps("staple.cu", _instance("add_staple", lattice, dtype), lattice.volume, TILES, dtype)


@cache
def update_links(lattice: Lattice) -> Launch:
    """Heat bath or over-relaxation of the links of one direction and parity."""
    instance = f"update_links<{listed(lattice.extents)}>"
    return _by_warps("heatbath.cu", instance, lattice.half_volume, TILES, np.dtype(complex))


@cache
def long_links(lattice: Lattice, dtype: np.dtype) -> Launch:
    """Products of three links in a row; grid (sites, mu)."""
    blocks = ceil(lattice.volume / WARPS_THREADS)
    return Launch("long_links.cu", _instance("long_links", lattice, dtype), (blocks, 4), WARPS_THREADS)


@cache
def doubled_links(lattice: Lattice, directions: int, dtype: np.dtype) -> Launch:
    """Links into the sites of a parity; grid (sites, directions)."""
    blocks = ceil(lattice.half_volume / WARPS_THREADS)
    kernel = _instance("doubled_links", lattice, dtype)
    return Launch("doubled_links.cu", kernel, (blocks, directions), WARPS_THREADS)


@cache
def matrices(file: str, kernel: str, count: int) -> Launch:
    """A kernel on so many matrices, each by itself: of projections or stout smearing."""
    return Launch(file, kernel, (ceil(count / WARPS_THREADS),), WARPS_THREADS)


@cache
def field_strength(lattice: Lattice, dtype: np.dtype) -> Launch:
    """The four plaquettes around every site."""
    blocks = ceil(lattice.volume / WARPS_THREADS)
    return Launch("field_strength.cu", _instance("field_strength", lattice, dtype), (blocks,), WARPS_THREADS)


@cache
def add_clover(elements: int, dtype: np.dtype) -> Launch:
    """Products of spin and colour matrices, an element of the clover term a thread."""
    blocks = min(ceil(elements / BLOCK_THREADS), 16 * MULTIPROCESSORS)
    return Launch("field_strength.cu", f"add_clover<{real_of(dtype)}>", (blocks,), BLOCK_THREADS)


@cache
def signs(kernel: str, lattice: Lattice, dtype: np.dtype) -> Launch:
    """`staggered_phases` or `boundary_signs`; grid (elements, mu)."""
    blocks = min(ceil(9 * lattice.volume / BLOCK_THREADS), 4 * MULTIPROCESSORS)
    return Launch("signs.cu", _instance(kernel, lattice, dtype), (blocks, 4), BLOCK_THREADS)


def _by_warps(file: str, instance: str, sites: int, tiles: int, dtype: np.dtype) -> Launch:
    shared = WARPS_THREADS * tiles * 9 * dtype.itemsize
    return Launch(file, instance, (ceil(sites / WARPS_THREADS),), WARPS_THREADS, shared)


def _instance(kernel: str, lattice: Lattice, dtype: np.dtype) -> str:
    return f"{kernel}<{real_of(dtype)}, {listed(lattice.extents)}>"
