"""Compiled by Numba, one site after another in a thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu import su3
from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice


def long_links(links: NDArray, lattice: Lattice, coefficient: float, out: NDArray) -> None:
    matrices, products = (field.reshape(4, 2, -1, 9) for field in (links, out))
    for mu in range(4):
        for parity in (EVEN, ODD):
            forward = lattice.neighbour(parity, mu, 1), lattice.neighbour(1 - parity, mu, 1)
            own, opposite = matrices[mu, parity], matrices[mu, 1 - parity]
            _kernel(out.dtype)(products[mu, parity], own, opposite, *forward, coefficient)


@cache
def _kernel(dtype: np.dtype) -> Callable[..., None]:
    def product(
        low: int,
        high: int,
        out: NDArray,
        own: NDArray,
        opposite: NDArray,
        one: NDArray,
        onward: NDArray,
        coefficient: float,
    ) -> None:
        for x in prange(low, high):
            next_site = one[x]
            two = su3.times(su3.load(own, x), su3.load(opposite, next_site))
            three = su3.times(two, su3.load(own, onward[next_site]))
            for row in range(3):
                for column in range(3):
                    out[x, 3 * row + column] = coefficient * three[row][column]

    matrices, table = array_type(dtype, 2), array_type(np.int32, 1)
    signature = types.void(
        array_type(dtype, 2, writable=True), matrices, matrices, table, table, types.float64
    )
    return compiled(product, f"long_links_{dtype.name}", signature, lambda out, *others: len(out))
