"""Heat bath on a GPU, one launch for the links of a direction and parity."""

from __future__ import annotations

from functools import cache

import cupy
import numpy as np

from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import TILES, Launch, by_warps, listed, warp_work
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice


def heat_bath(links: cupy.ndarray, lattice: Lattice, beta: float, key: tuple[int, int], sweep: int) -> None:
    _sweep(links, lattice, False, beta / 3, *key, sweep)


def over_relax(links: cupy.ndarray, lattice: Lattice) -> None:
    _sweep(links, lattice, True, 0.0, 0, 0, 0)


def _sweep(links: cupy.ndarray, lattice: Lattice, reflect: bool, weight: float, *random: int) -> None:
    kernel, words = update_links_launch(lattice), [np.uint32(word) for word in random]
    for mu in range(4):
        for parity in (EVEN, ODD):
            run(kernel, links, *map(np.int32, (mu, parity, reflect)), np.float64(weight), *words)


@cache
def update_links_launch(lattice: Lattice) -> Launch:
    """Heat bath or over-relaxation of the links of one direction and parity."""
    instance = f"update_links<{listed(lattice.extents)}>"
    work = warp_work(lattice)
    return by_warps("heatbath.cu", instance, lattice.half_volume, TILES, np.dtype(complex), work)
