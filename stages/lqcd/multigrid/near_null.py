"""Near-null vectors: blocks of fields ``[site, 2 n, k]`` on which a level's operator is small.

All vectors of a level are relaxed at once, as the right-hand sides of one block. A random field, relaxed on
A x = 0, keeps what the smoother reduces badly; inverse iteration with the cycle built from such vectors then
turns them towards the low modes (the adaptive setup of arXiv:1005.3043 and arXiv:1303.1377).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from stages.lqcd.kernels import block_blas, lane_blas, random_numbers
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import field_like, zeros_like
from stages.lqcd.multigrid.cycle import Cycle
from stages.lqcd.multigrid.fields import on_grid
from stages.lqcd.multigrid.grid import Grid
from stages.lqcd.multigrid.smoother import Smoother
from stages.lqcd.multigrid.system import LevelSystem
from stages.lqcd.solvers.even_odd import through


def random_fields(shape: tuple[int, ...], dtype: DTypeLike, like: Array, seed: int, draw: int = 0) -> Array:
    """Random fields ``[site, component, count]`` of `dtype` where `like` lives, the same on every backend."""
    fields = field_like(like, shape, dtype)
    random_numbers.fill_random(fields, seed, draw)
    return fields


def random_on_grid(grid: Grid, components: int, count: int, like: Array, seed: int, draw: int) -> Array:
    """Random fields ``[site, component, count]`` on a grid, complex64, where `like` lives."""
    fields = on_grid(grid, like, (components, count), np.complex64)
    random_numbers.fill_random(fields, seed, draw)
    return fields


def relaxed(system: LevelSystem, fields: Array, smoother: Smoother) -> Array:
    """The fields after the smoother's steps on A x = 0, in place; A x is then zero on the odd sites."""
    x = fields[: len(fields) // 2] if system.even else fields
    smoother.improve(system.operator, zeros_like(x), x)
    system.extend(fields)
    return fields


def refined(system: LevelSystem, fields: Array, cycle: Cycle) -> Array:
    """One step of inverse iteration: about A^-1 times the fields, first made of norm one, in place."""
    return through(system, normalised(fields), cycle.apply)


def normalised(fields: Array) -> Array:
    """Every field divided by its norm, in place."""
    lane_blas.lane_divide(fields, block_blas.norms(fields).astype(fields.real.dtype), fields)
    return fields
