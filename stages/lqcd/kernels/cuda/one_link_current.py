"""Contractions per time slice: the one-link taste-singlet vector current and plain dot products."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.cuda import block_blas
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import columns
from stages.lqcd.kernels.operands import check_current
from stages.lqcd.lattice.geometry import Lattice


def one_link_current(
    links: cupy.ndarray, noise: cupy.ndarray, solution: cupy.ndarray, lattice: Lattice, parity: int
) -> cupy.ndarray:
    """J_mu(t) = -Im sum_{x in t, x of parity} noise(x)^dag U_mu(x) solution(x + mu), float64 ``[N, mu, t]``.

    links: phased, of `parity`, ``[mu, site, 3, 3]``, used in the noise's precision; noise ``[site, 3, N]`` on
    `parity`; solution ``[site, 3, N]`` on the opposite parity. Sign and normalisation are MILC's.
    """
    n = noise.shape[-1]
    links = cupy.ascontiguousarray(links, noise.dtype)
    check_current(links, noise, solution, lattice)
    kernel = columns.one_link_current(lattice, n, noise.dtype)
    partials = cupy.empty((kernel.grid[0], lattice.time_extent, 4, n))
    run(kernel, links, noise, solution, partials, np.int32(parity))
    return block_blas.sum_partials(partials).T


def slice_dots(x: cupy.ndarray, y: cupy.ndarray, lattice: Lattice) -> cupy.ndarray:
    """conj(x) . y of each right-hand side and time slice, complex128 ``[N, t]``; x, y ``[site, 3, N]``."""
    return block_blas.slice_dots(x, y, lattice.time_extent).T
