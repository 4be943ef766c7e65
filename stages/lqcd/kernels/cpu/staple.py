"""Compiled by Numba, both staples of a site in one pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.directions import staple_tables
from stages.lqcd.lattice.geometry import Lattice


def add_staple(
    out: NDArray, field: NDArray, links_nu: NDArray, lattice: Lattice, mu: int, nu: int, coefficient: float
) -> None:
    for parity in (0, 1):
        own, opposite = links_nu[parity], links_nu[1 - parity]
        tables = staple_tables(lattice, parity, mu, nu)
        _kernel(out.dtype)(out[parity], field[1 - parity], own, opposite, *tables, coefficient)


def weighted_sum(a: float, x: NDArray, b: float, y: NDArray, out: NDArray) -> None:
    reals = (field.reshape(-1).view(x.real.dtype) for field in (out, x, y))
    _weighted_sum(x.real.dtype)(*reals, a, b)


def scaled(factor: float, x: NDArray, out: NDArray) -> None:
    np.multiply(x, factor, out=out)


@cache
def _weighted_sum(dtype: np.dtype) -> Callable[..., None]:
    def weighted_sum(low: int, high: int, out: NDArray, x: NDArray, y: NDArray, a: float, b: float) -> None:
        for i in prange(low, high):
            out[i] = a * x[i] + b * y[i]

    field = array_type(dtype, 1)
    signature = types.void(array_type(dtype, 1, writable=True), field, field, types.float64, types.float64)
    return compiled(weighted_sum, f"weighted_sum_{dtype.name}", signature, lambda out, *others: len(out))


@cache
def _kernel(dtype: np.dtype) -> Callable[..., None]:
    """Both staples of every site of a parity; f and `there` are fields on the other parity."""

    def staple(
        low: int,
        high: int,
        out: NDArray,
        f: NDArray,
        own: NDArray,
        opposite: NDArray,
        up: NDArray,
        side: NDArray,
        down: NDArray,
        corner: NDArray,
        coefficient: float,
    ) -> None:
        for x in prange(low, high):
            above, beside, below, beyond = up[x], side[x], down[x], corner[x]
            for i in range(3):
                u0, u1, u2 = own[x, i, 0], own[x, i, 1], own[x, i, 2]
                a0 = u0 * f[above, 0, 0] + u1 * f[above, 1, 0] + u2 * f[above, 2, 0]
                a1 = u0 * f[above, 0, 1] + u1 * f[above, 1, 1] + u2 * f[above, 2, 1]
                a2 = u0 * f[above, 0, 2] + u1 * f[above, 1, 2] + u2 * f[above, 2, 2]
                d0 = np.conj(opposite[below, 0, i])
                d1 = np.conj(opposite[below, 1, i])
                d2 = np.conj(opposite[below, 2, i])
                b0 = d0 * f[below, 0, 0] + d1 * f[below, 1, 0] + d2 * f[below, 2, 0]
                b1 = d0 * f[below, 0, 1] + d1 * f[below, 1, 1] + d2 * f[below, 2, 1]
                b2 = d0 * f[below, 0, 2] + d1 * f[below, 1, 2] + d2 * f[below, 2, 2]
                for k in range(3):
                    upper = (
                        a0 * np.conj(opposite[beside, k, 0])
                        + a1 * np.conj(opposite[beside, k, 1])
                        + a2 * np.conj(opposite[beside, k, 2])
                    )
                    lower = b0 * own[beyond, 0, k] + b1 * own[beyond, 1, k] + b2 * own[beyond, 2, k]
                    out[x, i, k] += coefficient * (upper + lower)

    matrices, table = array_type(dtype, 3), array_type(np.int32, 1)
    signature = types.void(
        array_type(dtype, 3, writable=True), matrices, matrices, matrices, *[table] * 4, types.float64
    )
    return compiled(staple, f"staple_{dtype.name}", signature, lambda out, *others: len(out))
