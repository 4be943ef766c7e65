"""Signs of links on a GPU, one thread a link."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.devices.partition import RowWork
from stages.lqcd.kernels.cuda.launch import BLOCK_THREADS, MULTIPROCESSORS, Launch, on_lattice
from stages.lqcd.lattice.geometry import Lattice


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
