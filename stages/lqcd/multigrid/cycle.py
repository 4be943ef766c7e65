"""One multigrid cycle: smooth, solve on the coarse grid, smooth.

    1  x = smoothed 0,  r = b - S x              `pre` on the system of the level
    2  e = A_c^-1 P^H (residual of A)            by the grid below, to a loose tolerance (K-cycle)
    3  x += P e,  r = b - S x                    on the sites of the system
    4  x += smoothed 0 for the residual r        `post`

as in arXiv:1612.07873 (section III) and arXiv:1005.3043. A coarse grid is solved by GCR with the cycle of
that grid as its preconditioner, so that a coarse problem that needs more work gets it (K-cycle: Notay and
Vassilevski, Numer. Linear Algebra Appl. 15 (2008) 473).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from stages.lqcd.kernels import coarse_dslash
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, empty_rows, field_like, zeros_like
from stages.lqcd.multigrid.smoother import Smoother
from stages.lqcd.multigrid.system import CoarseSystem, LevelSystem
from stages.lqcd.multigrid.transfer import CycleTransfer, Transfer
from stages.lqcd.solvers.even_odd import through
from stages.lqcd.solvers.gcr import gcr_correction


class GridSolve(Protocol):
    """A solver for the operator of a coarse grid."""

    def solve(self, b: Array) -> Array:
        """About A_c^-1 b, on the whole grid; b is kept."""


@dataclass(frozen=True, eq=False)
class Cycle:
    """A cycle as a preconditioner of `system.operator`, in its precision; as little linear as GCR."""

    system: LevelSystem
    transfer: Transfer | CycleTransfer
    below: GridSolve
    pre: Smoother | None
    post: Smoother | None

    @property
    def dtype(self) -> np.dtype:
        return self.system.operator.dtype

    def apply(self, x: Array, out: Array | None = None) -> Array:
        """About S^-1 x."""
        S = self.system.operator
        if self.pre is None:
            y, residual = zeros_like(x), x
        else:
            y, residual = self.pre.relax(S, x)
        self._add_coarse(self.system.defect(residual), y)
        del residual  # a part of the smoother's work space: the next one takes as much
        if self.post is not None:
            self.post.improve(S, x, y)
        if out is None:
            return y
        assign(out, y)
        return out

    def with_smoothers(self, smoothers: Sequence[tuple[Smoother | None, Smoother | None]]) -> Cycle:
        """This cycle with other smoothers (pre, post), one pair for each grid from this one on."""
        (pre, post), *others = smoothers
        below: Any = self.below
        if others:
            below = replace(below, cycle=below.cycle.with_smoothers(others))
        return replace(self, pre=pre, post=post, below=below)

    def _add_coarse(self, defect: Array, y: Array) -> None:
        """``y += P A_c^-1 P^H defect``."""
        if self.system.even:
            self.transfer.add_prolonged_even(self.below.solve(self.transfer.restrict_even(defect)), y)
        else:
            self.transfer.add_prolonged(self.below.solve(self.transfer.restrict(defect)), y)


@dataclass(frozen=True, eq=False)
class KrylovSolve:
    """GCR on the system of a grid until `steps` or `tolerance`, with a cycle of that grid or none."""

    system: LevelSystem
    steps: int
    tolerance: float
    cycle: Cycle | None = None

    def solve(self, b: Array) -> Array:
        S = self.system.operator
        return through(
            self.system,
            b,
            lambda rhs: gcr_correction(S, rhs, self.steps, self.tolerance, self.cycle),
        )


@dataclass(frozen=True, eq=False)
class DirectSolve:
    """The product with the inverse of the system of a small grid: a coarse operator that joins all sites."""

    system: LevelSystem
    inverse: Any

    def solve(self, b: Array) -> Array:
        dslash = coarse_dslash.coarse_dslash
        return through(self.system, b, lambda rhs: dslash(self.inverse, rhs, field_like(rhs)))


DIRECT_UNKNOWNS = 1024
"""Largest system that is inverted: an inverse costs less to apply than two steps of GCR up to here."""


def coarsest_solve(system: CoarseSystem, steps: int, tolerance: float) -> GridSolve:
    """The inverse of a small system, computed in double, NaN for a singular one; GCR for a larger one."""
    if np.prod(system.operator.shape) > DIRECT_UNKNOWNS:
        return KrylovSolve(system, steps, tolerance)
    matrix = system.dense()
    sites, n = system.operator.shape
    inverse = coarse_dslash.inverse(matrix).reshape(sites, n, sites, n).swapaxes(1, 2)
    everywhere = np.tile(np.arange(sites, dtype=np.int32), (sites, 1))
    links = empty_rows(inverse, inverse.shape, system.operator.dtype, 0)
    assign(links, inverse)
    packed = coarse_dslash.pack_half(links, everywhere)
    return DirectSolve(system, packed)
