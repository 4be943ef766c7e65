"""Compiled by Numba, one site after another in a thread."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu.compiled import array_type, compiled
from stages.lqcd.kernels.expressions import laplacian_step as laplacian_step
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice


def slice_shift(
    links: NDArray, field: NDArray, out: NDArray, lattice: Lattice, mu: int, step: int, first: int = 0
) -> NDArray:
    sites, real = lattice.sites_per_slice, links.real.dtype
    # on slice t the sites of parity p lie as those of parity (p + t) % 2 do on slice 0
    tables = np.stack([lattice.neighbour(parity, mu, step)[:sites] for parity in (EVEN, ODD)])
    rows = (field.size // field.shape[-1] // 3, 3, 2 * field.shape[-1])
    matrices = links[mu].view(real).reshape(2, lattice.half_volume, 3, 6)
    arrays = (matrices, tables, field.view(real).reshape(rows), out.view(real).reshape(rows))
    _kernel(real.itemsize)(*arrays, first, step)
    return out


@cache
def _kernel(itemsize: int) -> Callable[..., None]:
    """A shift on real views ``[row, 3, Re and Im of columns]``, rows numbered [time, parity, site]."""

    def slice_shift(
        low: int,
        high: int,
        links: NDArray,
        tables: NDArray,
        field: NDArray,
        out: NDArray,
        first: int,
        step: int,
    ) -> None:
        sites, columns = tables.shape[1], field.shape[2] // 2
        for row in prange(low, high):
            t, parity, site = row // (2 * sites), row // sites % 2, row % sites
            neighbour = tables[(parity + first + t) % 2, site]
            source = (2 * t + 1 - parity) * sites + neighbour
            start = (first + t) * sites
            for i in range(3):
                for lane in range(2 * columns):
                    out[row, i, lane] = 0
                for k in range(3):
                    if step == 1:
                        re = links[parity, start + site, i, 2 * k]
                        im = links[parity, start + site, i, 2 * k + 1]
                    else:
                        re = links[1 - parity, start + neighbour, k, 2 * i]
                        im = -links[1 - parity, start + neighbour, k, 2 * i + 1]
                    for j in range(columns):
                        a, b = field[source, k, 2 * j], field[source, k, 2 * j + 1]
                        out[row, i, 2 * j] += re * a - im * b
                        out[row, i, 2 * j + 1] += re * b + im * a

    real = f"f{itemsize}"
    block, written = array_type(real, 3), array_type(real, 3, writable=True)
    signature = types.void(array_type(real, 4), array_type("i4", 2), block, written, types.int64, types.int64)
    return compiled(
        slice_shift, f"slice_shift_{8 * itemsize}", signature, lambda *arguments: len(arguments[3])
    )
