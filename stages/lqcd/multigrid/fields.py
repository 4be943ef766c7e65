"""Arrays with a row for each site of a grid, where GPUs that share the lattice work on them."""

from __future__ import annotations

from numpy.typing import DTypeLike

from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import empty_rows, zero_rows
from stages.lqcd.multigrid.grid import Grid

SHARED_SITES = 2048
"""A grid with fewer sites lies on the first GPU: launches of a few microseconds do not wait for others."""


def on_grid(grid: Grid, like: Array, shape: tuple[int, ...], dtype: DTypeLike | None = None) -> Array:
    """An array ``[site, *shape]``, not filled, of the library and, unless given, the dtype of another."""
    return empty_rows(like, (grid.sites, *shape), dtype or like.dtype, _runs(grid))


def zeros_on_grid(grid: Grid, like: Array, shape: tuple[int, ...], dtype: DTypeLike | None = None) -> Array:
    """An array ``[site, *shape]`` of zeros: see `on_grid`."""
    return zero_rows(like, (grid.sites, *shape), dtype or like.dtype, _runs(grid))


def _runs(grid: Grid) -> int:
    """Runs of sites that are cut in t: those of each parity where the grid has parities."""
    return 0 if grid.sites < SHARED_SITES else 2 if grid.even_odd else 1
