"""Links between aggregates from near-null vectors in shared memory; no field of products is written."""

from __future__ import annotations

from functools import cache
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.clover import PackedClover
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.own_rows import site_work
from stages.lqcd.kernels.cuda.devices.partition import Work
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, Launch
from stages.lqcd.kernels.wilson_galerkin import Aggregated
from stages.lqcd.lattice.geometry import Lattice

SITES, PARTS, WARP = 16, 2, 32
"""Sites of an aggregate in shared memory at a time; warps that share their terms."""

LOCAL = 4
"""In the place of a direction: the part of the operator that stays on a site."""

MOST_VECTORS, MOST_SITES = 32, 1024
"""Of an aggregate, that registers and shared memory hold."""

_NULL = np.uintp(0)


def takes(vectors: int, per_aggregate: int) -> bool:
    return vectors % 8 == 0 and vectors <= MOST_VECTORS and per_aggregate <= MOST_SITES


def places(sites: cupy.ndarray) -> cupy.ndarray:
    result = cupy.empty(sites.size, np.int32)
    run(places_launch(sites.size), sites, result, np.int32(sites.size))
    return result


def put_hop(
    vectors: cupy.ndarray,
    where: Aggregated,
    links: cupy.ndarray,
    mu: int,
    factor: float,
    inside: cupy.ndarray,
    coarse_links: cupy.ndarray,
) -> None:
    sites = where.sites
    kernel = wilson_galerkin_launch(vectors.shape[3], mu, *sites.shape, site_work(vectors))
    arrays = vectors, sites, where.places, links[mu], _NULL, _NULL, inside, coarse_links
    run(kernel, *arrays, *_numbers(factor, sites.shape[1], where.extents[mu], where.lattice))


def put_local(
    vectors: cupy.ndarray,
    sites: cupy.ndarray,
    clover: tuple[PackedClover, PackedClover],
    lattice: Lattice,
    diagonal: cupy.ndarray,
) -> None:
    kernel = wilson_galerkin_launch(vectors.shape[3], LOCAL, *sites.shape, site_work(vectors))
    matrices = (packed.matrices for packed in clover)
    arrays = vectors, sites, _NULL, _NULL, *matrices, diagonal, _NULL
    run(kernel, *arrays, *_numbers(1.0, sites.shape[1], 1, lattice))


def _numbers(factor: float, per_aggregate: int, cut: int, lattice: Lattice) -> tuple[np.generic, ...]:
    integers = per_aggregate, cut, *lattice.extents
    return np.float32(factor), *(np.int32(number) for number in integers)


@cache
def wilson_galerkin_launch(
    vectors: int,
    mu: int,
    aggregates: int,
    per_aggregate: int,
    work: Work | None = None,
) -> Launch:
    """Grid (aggregates); mu may be `LOCAL`."""
    tiles, pitch = vectors // 8, vectors + 4
    warps = 2 * tiles * PARTS
    stage, sums = (2 * 2 * SITES * 6 * pitch + SITES * 36) * 8, warps * 4 * tiles * WARP * 8
    shared = max(stage, sums) + 8 * per_aggregate
    instance = f"wilson_galerkin<{vectors}, {mu}>"
    return Launch("wilson_galerkin.cu", instance, (aggregates,), WARP * warps, shared, work=work)


@cache
def places_launch(sites: int) -> Launch:
    return Launch("wilson_galerkin.cu", "places_of_sites", (ceil(sites / BLOCK_THREADS),), BLOCK_THREADS)
