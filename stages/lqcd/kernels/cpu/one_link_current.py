"""One-link current, a slice after another in a thread, every colour of every link in one pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.cpu.lane_dots import dots_by_block
from stages.lqcd.kernels.cpu.rows import real_rows
from stages.lqcd.lattice.geometry import Lattice


def one_link_current(
    links: NDArray, noise: NDArray, solution: NDArray, lattice: Lattice, parity: int
) -> NDArray[np.float64]:
    neighbours = np.stack([lattice.neighbour(parity, mu, 1) for mu in range(4)])
    current = np.empty((lattice.time_extent, 4, noise.shape[2]))
    _kernel(noise.shape[2], noise.itemsize // 2)(
        links.reshape(4, -1, 9), neighbours, real_rows(noise), real_rows(solution), current
    )
    return np.ascontiguousarray(current.T)


def slice_dots(x: NDArray, y: NDArray, lattice: Lattice) -> NDArray[np.complex128]:
    return np.ascontiguousarray(dots_by_block(x, y, 3 * lattice.sites_per_slice).T)


@cache
def _kernel(rhs: int, itemsize: int) -> Callable[..., None]:
    """Current ``[t, mu, N]``, one slice after another in a thread, every colour of every link in one pass.

    Fields are rows of reals; Re(U) v and Im(U) v are kept apart and combined once, as in the dslash.
    """
    lanes = 2 * rhs

    def current(
        low: int,
        high: int,
        links: NDArray,
        neighbours: NDArray,
        noise: NDArray,
        solution: NDArray,
        current: NDArray,
    ) -> None:
        sites = neighbours.shape[1] // len(current)
        for t in prange(low, high):
            re, im = np.empty(lanes, noise.dtype), np.empty(lanes, noise.dtype)
            for mu in range(4):
                for n in range(rhs):
                    current[t, mu, n] = 0
            for site in range(t * sites, (t + 1) * sites):
                for mu in range(4):
                    u, row = links[mu, site], 3 * neighbours[mu, site]
                    for i in range(3):
                        u0, u1, u2 = u[3 * i], u[3 * i + 1], u[3 * i + 2]
                        for lane in range(lanes):
                            v0, v1, v2 = solution[row, lane], solution[row + 1, lane], solution[row + 2, lane]
                            re[lane] = u0.real * v0 + u1.real * v1 + u2.real * v2
                            im[lane] = u0.imag * v0 + u1.imag * v1 + u2.imag * v2
                        for n in range(rhs):
                            hop_re, hop_im = re[2 * n] - im[2 * n + 1], re[2 * n + 1] + im[2 * n]
                            bra_re, bra_im = noise[3 * site + i, 2 * n], noise[3 * site + i, 2 * n + 1]
                            current[t, mu, n] += bra_im * hop_re - bra_re * hop_im

    block = array_type(f"f{itemsize}", 2)
    links_type, result_type = array_type(f"c{2 * itemsize}", 3), array_type("f8", 3, writable=True)
    signature = types.void(links_type, array_type("i4", 2), block, block, result_type)
    name = f"one_link_current_{rhs}_{8 * itemsize}"
    return compiled(current, name, signature, lambda *arguments: len(arguments[-1]))
