"""One multigrid cycle, and the rate at which cycles converge.

    1  e = A_c^-1 P^H (residual of A)            by the grid below, to a loose tolerance (K-cycle)
    2  x = P e,  r = b - S x                     on the sites of S
    3  x += smoothed 0 for the residual r

as in arXiv:1612.07873 (section III) and arXiv:1005.3043. A coarse grid is solved by GCR with the cycle of
that grid as its preconditioner, so that a coarse problem that needs more work gets it (K-cycle: Notay and
Vassilevski, Numer. Linear Algebra Appl. 15 (2008) 473).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels import block_blas, coarse_dslash
from stages.lqcd.kernels.coarse_dslash import PackedCoarseLinks
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, empty_rows, field_like, zeros_like
from stages.lqcd.multigrid.coarse_operator import CoarseOperator, LevelOperator
from stages.lqcd.multigrid.grid import random_fields
from stages.lqcd.multigrid.smoothers import Smoother, fitted
from stages.lqcd.multigrid.transfer import Prolongation, Transfer
from stages.lqcd.solvers.even_odd import through
from stages.lqcd.solvers.gcr import CYCLE_RESTART, GCRSpace, MultigridGCR, gcr_correction


@dataclass(frozen=True, eq=False)
class Level:
    """A grid that has another one below: its operator A, with S, the transfer P to that grid, and a smoother.

    steps, tolerance: of GCR on the grid below in every
    cycle. prolongation: P with its vectors, which a loaded level has no longer. moments: of what is left to
    the smoother (`stages.lqcd.multigrid.smoothers`), or None.
    """

    A: LevelOperator
    transfer: Transfer
    smoother: Smoother
    steps: int
    tolerance: float
    prolongation: Prolongation | None = None
    moments: NDArray[np.complex128] | None = None

    def fitted(self, moments: NDArray[np.complex128] | None) -> Level:
        """This level with a smoother that is fitted to the moments, where there are any."""
        return replace(self, smoother=fitted(self.smoother, moments), moments=moments)


@dataclass(frozen=True, eq=False)
class Coarsest:
    """The coarsest grid: its operator, and the packed inverse of a small S, or None where GCR solves it."""

    A: CoarseOperator
    steps: int
    tolerance: float
    inverse: PackedCoarseLinks | None

    def solve(self, b: Array) -> Array:
        """About A^-1 b, on the whole grid; b is kept."""
        return through(self.A, b, self._corrected)

    def _corrected(self, rhs: Array) -> Array:
        """About S^-1 rhs."""
        if self.inverse is None:
            return gcr_correction(self.A.operator, rhs, self.steps, self.tolerance)
        return coarse_dslash.coarse_dslash(self.inverse, rhs, field_like(rhs))


@dataclass(frozen=True, eq=False)
class Cycle:
    """A preconditioner of S on the first of the levels, in its precision; as little linear as GCR."""

    levels: tuple[Level, ...]
    coarsest: Coarsest

    @property
    def dtype(self) -> np.dtype:
        return self.levels[0].A.dtype

    def apply(self, x: Array) -> Array:
        """About S^-1 x."""
        level, y = self.levels[0], zeros_like(x)
        self._add_coarse(level.A.defect(x), y)
        level.smoother.improve(level.A.operator, x, y)
        return y

    def _add_coarse(self, defect: Array, y: Array) -> None:
        """``y += P A_c^-1 P^H defect``."""
        transfer = self.levels[0].transfer
        transfer.add_prolonged(self.solve_below(transfer.restrict(defect)), y)

    def solve_below(self, b: Array) -> Array:
        """About A_c^-1 b, on the whole grid below; b is kept."""
        level, cycle = self.levels[0], self.below
        if cycle is None:
            return self.coarsest.solve(b)
        A = cycle.levels[0].A
        S = A.operator
        return through(A, b, lambda rhs: gcr_correction(S, rhs, level.steps, level.tolerance, cycle))

    @property
    def below(self) -> Cycle | None:
        """The cycle of the grid below, None for the coarsest one."""
        return Cycle(self.levels[1:], self.coarsest) if len(self.levels) > 1 else None

    def with_levels(self, levels: Iterable[Level]) -> Cycle:
        return Cycle(tuple(levels), self.coarsest)

    def with_smoothers(self, smoothers: Sequence[Smoother]) -> Cycle:
        """This cycle with other smoothers, those of each level."""
        pairs = zip(self.levels, smoothers, strict=True)
        return self.with_levels(replace(level, smoother=smoother) for level, smoother in pairs)


DIRECT_UNKNOWNS = 1024
"""Largest system that is inverted: an inverse costs less to apply than two steps of GCR up to here."""


def coarsest(A: CoarseOperator, steps: int, tolerance: float) -> Coarsest:
    """The inverse of a small system, computed in double, NaN for a singular one; GCR for a larger one."""
    sites, n = A.operator.shape
    if sites * n > DIRECT_UNKNOWNS:
        return Coarsest(A, steps, tolerance, None)
    inverse = coarse_dslash.inverse(A.dense()).reshape(sites, n, sites, n).swapaxes(1, 2)
    everywhere = np.tile(np.arange(sites, dtype=np.int32), (sites, 1))
    links = empty_rows(inverse, inverse.shape, A.dtype, 0)
    assign(links, inverse)
    return Coarsest(A, steps, tolerance, coarse_dslash.pack_half(links, everywhere))


MEASURED, SOLVED, MOST_CYCLES = 1e-6, 1e-10, 60
"""A rate is measured until a residual is reduced by the first number, in at most `MOST_CYCLES`: low modes,
of which a random residual has little, show at the end. The last cycles say how it goes on to the second."""

FIRST_CYCLES, LAST_CYCLES = 5, 4
"""Those that begin a solve, with smoothers fitted each time, and at least so many that say how it goes on."""

WEAKER = 1.75
"""Times the gain of as many cycles with smoothers fitted once, in logarithms, that those before may have."""

RATE_DRAW = 1000
"""Draw of the random residual; those below are the vectors of the levels."""

Begun = tuple[GCRSpace, list[float]]
"""A solve after its first cycles, and its |r_k|^2, k = 0, 1, ..."""


def first_cycles(cycle: Cycle, seed: int) -> Begun:
    """The first cycles of a solve of a random residual, all queued before the host looks at one."""
    A = cycle.levels[0].A
    S = A.operator
    r = random_fields((*S.shape, 1), S.dtype, A.links, seed, draw=RATE_DRAW)
    space = GCRSpace(S, r, CYCLE_RESTART, cycle, 0 * block_blas.norms2(r))
    norms2 = [space.r2]
    for _ in range(FIRST_CYCLES):
        space.step()
        norms2.append(space.r2)
    return space, [float(each[0]) for each in norms2]


def measured_rate(cycle: Cycle, seed: int, begun: Begun | None = None) -> float:
    """10^(-10 / n) where a solve of a random residual to 1e-10 takes n cycles; may be NaN.

    By GCR with the restarts of `MultigridGCR`, in the precision of the cycle. begun: the solve, which other
    cycles have begun and which ends here.
    """
    space, norms2 = begun or first_cycles(cycle, seed)
    space.preconditioner, least = cycle, len(norms2) + LAST_CYCLES
    while len(norms2) < least or (norms2[-1] > MEASURED**2 * norms2[0] and len(norms2) <= MOST_CYCLES):
        if space.taken == space.size or norms2[-1] <= MultigridGCR.update_at**2 * norms2[-1 - space.taken]:
            space.begin(space.r, space.target2)
        space.step()
        norms2.append(float(space.r2[0]))
    return rate_of(norms2, least - LAST_CYCLES - 1)


def rate_of(norms2: list[float], begun: int = 0) -> float:
    """The rate of a solve with these |r_k|^2, which goes on as in its last cycles, those after `begun`."""
    last = np.sqrt(np.array(norms2[begun:][-CYCLE_RESTART - 1 :]) / norms2[0])
    recent = (last[-1] / last[0]) ** (1 / (len(last) - 1))
    if recent >= 1:
        return 1.0
    left = max(np.log(SOLVED / last[-1]) / np.log(recent), 0.0)
    return float((last[-1] * recent**left) ** (1 / (len(norms2) - 1 + left)))


def weaker(norms2: list[float]) -> bool:
    """True if the first cycles of a solve gain far more than those that follow, which are others."""
    before, middle, after = (norms2[FIRST_CYCLES + k * LAST_CYCLES] for k in (-1, 0, 1))
    return bool(np.log(before / middle) > WEAKER * np.log(middle / after))
