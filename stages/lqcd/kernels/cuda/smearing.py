"""One thread a link or a matrix; sums of fields in one pass."""

from __future__ import annotations

from functools import cache

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.arithmetic import weighted_sum as weighted_sum
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.own_rows import on_own_rows, segments_of
from stages.lqcd.kernels.cuda.launch import TILES, Launch, by_warps, matrix_launch, on_lattice, warp_work
from stages.lqcd.kernels.smearing import LARGEST_UNITARITY_ERROR, SMALLEST_DETERMINANT
from stages.lqcd.lattice.geometry import Lattice


def add_staple(
    out: cupy.ndarray,
    field: cupy.ndarray,
    links_nu: cupy.ndarray,
    lattice: Lattice,
    mu: int,
    nu: int,
    coefficient: float,
) -> None:
    real = np.float32 if out.dtype == np.complex64 else np.float64
    kernel = add_staple_launch(lattice, out.dtype)
    run(kernel, out, field, links_nu, np.int32(mu), np.int32(nu), real(coefficient))


@cache
def add_staple_launch(lattice: Lattice, dtype: np.dtype) -> Launch:
    """Both staples around every link of a direction."""
    name, work = on_lattice("add_staple", lattice, dtype), warp_work(lattice, parities=2)
    return by_warps("staple.cu", name, lattice.volume, TILES, dtype, work)


def smeared_links(staples: cupy.ndarray, links: cupy.ndarray, out: cupy.ndarray) -> None:
    matrices = links.size // 9
    kernel = matrix_launch("stout.cu", "smeared_links", matrices, segments_of(out.reshape(-1, 3, 3)))
    run(kernel, out, staples, links, np.uint32(matrices))


def special_unitary(links: cupy.ndarray, out: cupy.ndarray) -> float:
    change = cupy.zeros(1)
    kernel = matrix_launch("projection.cu", "special_unitary", len(links), segments_of(out))
    run(kernel, out, links, change, np.uint32(len(links)))
    return float(np.sqrt(change.get()[0]))


def unitary(matrices: cupy.ndarray, out: cupy.ndarray) -> cupy.ndarray:
    singular = cupy.empty(len(matrices), bool)
    bounds = np.float64(SMALLEST_DETERMINANT), np.float64(LARGEST_UNITARITY_ERROR)
    kernel = matrix_launch("projection.cu", "unitary", len(matrices), segments_of(out))
    run(kernel, out, singular, matrices, *bounds, np.uint32(len(matrices)))
    return singular


def by_singular_values(matrices: cupy.ndarray, chosen: cupy.ndarray) -> int:
    return sum(on_own_rows(_by_singular_values, matrices, chosen))


def _by_singular_values(matrices: cupy.ndarray, chosen: cupy.ndarray) -> int:
    places = cupy.flatnonzero(chosen)
    if len(places):
        left, _, right = cupy.linalg.svd(matrices[places])
        matrices[places] = left @ right
    return len(places)


def without_phase(matrices: cupy.ndarray) -> None:
    kernel = matrix_launch("projection.cu", "without_phase", len(matrices), segments_of(matrices))
    run(kernel, matrices, np.uint32(len(matrices)))
