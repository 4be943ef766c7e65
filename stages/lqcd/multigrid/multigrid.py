"""Adaptive geometric multigrid for Wilson-clover operators: its parameters, and the setup.

Every level starts from random vectors, relaxed together on A x = 0. The hierarchy built from them then
refines them: inverse iteration with its own cycle, all vectors as one block, and everything is built again
(arXiv:1303.1377, section 4). The grids below are set up from the restricted vectors of the one above, and
refined themselves where they are to stay: for the refinement of the vectors above it makes no difference.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.kernels import aggregation, block_blas
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import on_rows
from stages.lqcd.kernels.host_lapack import in_one_blas_thread
from stages.lqcd.multigrid.coarse_operator import CoarseOperator, galerkin
from stages.lqcd.multigrid.cycle import Cycle, GridSolve, KrylovSolve, Smoother, coarsest_solve
from stages.lqcd.multigrid.fine_operator import FineOperator
from stages.lqcd.multigrid.finite import answered_at_end
from stages.lqcd.multigrid.fitted import fitted, moments_of, recorded
from stages.lqcd.multigrid.grid import Aggregates, Extents, Grid, aggregates
from stages.lqcd.multigrid.hierarchy import Attempt, Hierarchy, Level, check_stored, load_levels
from stages.lqcd.multigrid.near_null import random_fields, random_on_grid, refined, relaxed
from stages.lqcd.multigrid.polynomial import PolynomialSmoother
from stages.lqcd.multigrid.system import CoarseSystem, FineSystem, LevelSystem, coarse_system
from stages.lqcd.multigrid.transfer import transfer
from stages.lqcd.solvers.gcr import CYCLE_RESTART, GCRSpace, MultigridGCR

MEASURED, SOLVED, MOST_CYCLES = 1e-6, 1e-10, 60
"""A rate is measured until a residual is reduced by the first number, in at most `MOST_CYCLES`: low modes,
of which a random residual has little, show at the end. The last cycles say how it goes on to the second."""

FIRST_CYCLES, LAST_CYCLES = 5, 4
"""Those that begin a solve, with smoothers fitted each time, and at least so many that say how it goes on."""

NO_GAIN = 0.95
"""Rate of cycles that are as good as none."""

WORSE = 1.5
"""Times the cycles with smoothers fitted each time that a solve with those fitted once may take."""

WEAKER = 1.75
"""Times the gain of as many cycles with smoothers fitted once, in logarithms, that those before may have."""

RATE_DRAW = 1000
"""Draw of the random residual; those below are the vectors of the levels."""

ATTEMPTS = 2


SMOOTHING, RELAXATION = PolynomialSmoother(8), PolynomialSmoother(8)


class PoorSetup(RuntimeError):  # noqa: N818 - it reads as what it is
    """A setup whose cycle does not converge fast enough, whatever the random start."""


@dataclass(frozen=True)
class LevelParameters:
    """Parameters of a grid that is not the coarsest.

    aggregate: extents (x, y, z, t) of the blocks that become the sites of the grid below. vectors: near-null
    vectors, the number of components of each chirality there. pre, post: smoothers, or None. relaxation:
    smoother for the random start. refinements: times that the vectors are refined by the hierarchy so far.
    steps, tolerance: of GCR on the grid below in every cycle (K-cycle).
    """

    aggregate: Extents = (4, 4, 4, 4)
    vectors: int = 24
    pre: Smoother | None = None
    post: Smoother | None = SMOOTHING
    relaxation: Smoother = RELAXATION
    refinements: int = 2
    steps: int = 2
    tolerance: float = 0.1

    def __post_init__(self) -> None:
        for name, value, least in (
            ("vectors", self.vectors, 1),
            ("refinements", self.refinements, 0),
            ("steps", self.steps, 1),
        ):
            if value < least:
                raise InputError(f"{name} of a multigrid level must be at least {least}, got {value}")
        if not 0 <= self.tolerance < 1:
            raise InputError(f"tolerance of a multigrid level must lie between 0 and 1, got {self.tolerance}")
        if self.pre is None and self.post is None:
            raise InputError("a multigrid level needs a smoother: give pre, post or both")


@dataclass(frozen=True)
class Multigrid:
    """Parameters of a hierarchy: its levels from the finest on, the coarsest grid not counted.

    coarsest_steps: of GCR on the coarsest grid, to the tolerance of the level above, where it is too large
    to be inverted. seed: of the random vectors. largest_rate: a setup whose cycle has a larger rate
    (`measured_rate`) is poor.
    """

    levels: tuple[LevelParameters, ...] = field(default_factory=lambda: (LevelParameters(),))
    coarsest_steps: int = 30
    seed: int = 20090311
    largest_rate: float = 0.8

    def __post_init__(self) -> None:
        if not self.levels:
            raise InputError("multigrid needs at least one level above the coarsest")
        if self.coarsest_steps < 1:
            raise InputError(f"coarsest_steps must be at least 1, got {self.coarsest_steps}")
        if not 0 < self.largest_rate < 1:
            raise InputError(f"largest_rate must lie between 0 and 1, got {self.largest_rate}")

    @in_one_blas_thread
    def setup(self, M: WilsonOperator) -> Hierarchy:
        """The hierarchy of M, built in complex64.

        A poor one is built once more from another seed. Raises InputError where aggregates do not divide a
        grid or have fewer components than vectors or where vectors are more than the kernels take, PoorSetup
        where the second one is poor too.
        """
        blocks = self.aggregates(Grid(M.lattice.extents))
        fine = FineOperator(M.astype(np.complex64))
        if M.xp is not np:
            check_vectors(level.vectors for level in self.levels)
        like: Array = M.links.links
        started, attempts = time.perf_counter(), []
        for seed in range(self.seed, self.seed + ATTEMPTS):
            run = _Setup(self, blocks, like, seed)
            with answered_at_end():
                levels, cycle = run.build(fine, FineSystem(fine), None, 0, stays=True)
                levels, cycle, rate = self._fitted(levels, cycle, like, seed)
            attempts.append(Attempt(seed, rate))
            if rate <= self.largest_rate:
                return Hierarchy(M, levels, cycle, tuple(attempts), time.perf_counter() - started)
        raise PoorSetup(self._poor(attempts, _rate(first_cycles(cycle, like, seed)[1])))

    def _poor(self, attempts: list[Attempt], first: float) -> str:
        """Message of poor setups; first: the rate of the first cycles of the last one."""
        rates = " and ".join(f"{attempt.rate:.2g}" for attempt in attempts)
        if first <= self.largest_rate:
            remedy = (
                f"the first ones do by {first:.2g}, then low modes are left: raise vectors or refinements"
            )
        elif first < NO_GAIN:
            remedy = "raise vectors, refinements or smoothing steps"
        else:
            remedy = "no cycle gains anything: take fewer smoothing steps or another smoother"
        return (
            f"multigrid setups from two seeds reduce a residual by no more than {rates} a cycle "
            f"(largest_rate is {self.largest_rate}); {remedy}, and check that the mass is above its critical "
            "value"
        )

    def _fitted(
        self, levels: tuple[Level, ...], cycle: Cycle, like: Array, seed: int
    ) -> tuple[tuple[Level, ...], Cycle, float]:
        """Levels with the moments of smoothers that are fitted once, their cycle, and its rate.

        cycle: the one with smoothers fitted each time, which stay where those fitted once do worse. These
        go on with the solve that the others begin, whose residual is rich in low modes.
        """
        recorders = [recorded(level.post) for level in self.levels]
        pairs = zip((level.pre for level in self.levels), recorders, strict=True)
        begun = first_cycles(cycle.with_smoothers(list(pairs)), like, seed)
        fits = [
            replace(level, moments=moments_of(recorder))
            for level, recorder in zip(levels, recorders, strict=True)
        ]
        bound = min(self.largest_rate, _rate(begun[1]) ** (1 / WORSE))
        found = self._measured(tuple(fits), cycle, like, seed, begun)
        if found[-1] <= bound and not _weaker(begun[1]):
            return found
        best = levels, cycle, measured_rate(cycle, like, seed)
        bound = min(self.largest_rate, best[-1] ** (1 / WORSE))
        for number, fit in enumerate(fits if len(fits) > 1 else ()):
            found = self._measured((*best[0][:number], fit, *levels[number + 1 :]), cycle, like, seed)
            best = found if found[-1] <= bound else best
        return best

    def _measured(
        self, levels: tuple[Level, ...], cycle: Cycle, like: Array, seed: int, begun: Begun | None = None
    ) -> tuple[tuple[Level, ...], Cycle, float]:
        """Levels, the cycle with their smoothers, and its rate."""
        cycle = cycle.with_smoothers([self.smoothers(*each) for each in enumerate(levels)])
        return levels, cycle, measured_rate(cycle, like, seed, begun)

    def load(self, arrays: dict[str, Any], metadata: dict[str, Any], M: WilsonOperator) -> Hierarchy:
        """The hierarchy of which these are `arrays` and `metadata`; InputError unless it is one of M."""
        check_stored(metadata, M)
        fine = FineOperator(M.astype(np.complex64))
        level_aggregates = self.aggregates(fine.grid)
        if [list(blocks.extents) for blocks in level_aggregates] != metadata["aggregates"]:
            stored = metadata["aggregates"]
            raise InputError(f"the stored multigrid setup has aggregates {stored}, not those of these levels")
        levels = load_levels(arrays, metadata, level_aggregates, fine.M.links.links)
        attempts = tuple(Attempt(int(seed), float(rate)) for seed, rate in metadata["attempts"])
        cycle = self.cycle(FineSystem(fine), levels, 0)
        return Hierarchy(M, levels, cycle, attempts, metadata["seconds"])

    def aggregates(self, grid: Grid) -> list[Aggregates]:
        """The aggregates of every level; InputError where they do not divide its grid."""
        chain: list[Aggregates] = []
        for level in self.levels:
            chain.append(aggregates(chain[-1].coarse if chain else grid, tuple(level.aggregate)))
        return chain

    def cycle(self, system: LevelSystem, levels: tuple[Level, ...], number: int) -> Cycle:
        """The cycle of level `number`, the first of those given."""
        first, *rest = levels
        below = coarse_system(first.operator)
        cycle = self.cycle(below, tuple(rest), number + 1) if rest else None
        return self.joined(system, first, below, cycle, number)

    def joined(
        self, system: LevelSystem, level: Level, below: CoarseSystem, cycle: Cycle | None, number: int
    ) -> Cycle:
        """The cycle of level `number`; below, cycle: of the next grid, no cycle on the coarsest."""
        chosen = self.levels[number]
        solve: GridSolve
        if cycle is None:
            solve = coarsest_solve(below, self.coarsest_steps, chosen.tolerance)
        else:
            solve = KrylovSolve(below, chosen.steps, chosen.tolerance, cycle)
        return Cycle(system, level.transfer, solve, *self.smoothers(number, level))

    def smoothers(self, number: int, level: Level) -> tuple[Smoother | None, Smoother | None]:
        """Smoothers before and after the coarse correction, fitted to the level where it has moments."""
        chosen = self.levels[number]
        return fitted(chosen.pre, level.moments), fitted(chosen.post, level.moments)


@dataclass(frozen=True)
class _Setup:
    """One run of the setup."""

    multigrid: Multigrid
    aggregates: list[Aggregates]
    like: Array
    seed: int

    def build(
        self,
        A: FineOperator | CoarseOperator,
        system: LevelSystem,
        above: Array | None,
        number: int,
        stays: bool,
    ) -> tuple[tuple[Level, ...], Cycle]:
        """Levels and cycle from level `number`; above: the restricted vectors of the level before.

        stays: whether they do, as often refined as they should be, or serve to refine the vectors above.
        """
        own = self.multigrid.levels[number].refinements if stays else 0
        vectors = relaxed(system, self._start(A, above, number), self.multigrid.levels[number].relaxation)
        levels, cycle = self._levels(A, system, vectors, number, stays and not own)
        for passes in reversed(range(own)):
            vectors = refined(system, vectors, cycle)
            del levels, cycle  # their memory is needed
            levels, cycle = self._levels(A, system, vectors, number, not passes)
        return levels, cycle

    def _start(self, A: FineOperator | CoarseOperator, above: Array | None, number: int) -> Array:
        """Restricted vectors as far as there are any, then random ones."""
        count = self.multigrid.levels[number].vectors
        restricted = 0 if above is None else min(count, above.shape[-1])
        fields = random_on_grid(A.grid, A.components, count, self.like, self.seed, number)
        if above is not None:
            on_rows(partial(_put_first, restricted), fields, above)
        return fields

    def _levels(
        self,
        A: FineOperator | CoarseOperator,
        system: LevelSystem,
        vectors: Array,
        number: int,
        stays: bool,
    ) -> tuple[tuple[Level, ...], Cycle]:
        """Levels and cycle of these vectors."""
        P, restricted = transfer(self.aggregates[number], vectors, 2 if stays else 1)
        coarse = galerkin(A, P)
        first = Level(replace(P), coarse)  # what P packed for the setup, few cycles read
        below, cycle = coarse_system(coarse), None
        deeper: tuple[Level, ...] = ()
        if number + 1 < len(self.multigrid.levels):
            deeper, cycle = self.build(coarse, below, restricted(), number + 1, stays)
        return (first, *deeper), self.multigrid.joined(system, first, below, cycle, number)


def _put_first(count: int, fields: Array, above: Array) -> None:
    fields[..., :count] = above[..., :count]


def check_vectors(counts: Iterable[int]) -> None:
    """Raise InputError where a level has more near-null vectors than a GPU takes."""
    for count in counts:
        if count > aggregation.MOST_ON_GPU:
            raise InputError(
                f"{count} near-null vectors, but multigrid on a GPU takes at most {aggregation.MOST_ON_GPU} "
                "on a level: take fewer, or compute on CPUs"
            )


Begun = tuple[GCRSpace, list[float]]
"""A solve after its first cycles, and its |r_k|^2, k = 0, 1, ..."""


def measured_rate(cycle: Cycle, like: Array, seed: int, begun: Begun | None = None) -> float:
    """10^(-10 / n) where a solve of a random residual to 1e-10 takes n cycles; may be NaN.

    By GCR with the restarts of `MultigridGCR`, in the precision of the cycle. begun: the solve, which other
    cycles have begun and which ends here.
    """
    space, norms2 = begun or first_cycles(cycle, like, seed)
    space.preconditioner, least = cycle, len(norms2) + LAST_CYCLES
    while len(norms2) < least or (norms2[-1] > MEASURED**2 * norms2[0] and len(norms2) <= MOST_CYCLES):
        if space.taken == space.size or norms2[-1] <= MultigridGCR.update_at**2 * norms2[-1 - space.taken]:
            space.begin(space.r, space.target2)
        space.step()
        norms2.append(float(space.r2[0]))
    return _rate(norms2, least - LAST_CYCLES - 1)


def _rate(norms2: list[float], begun: int = 0) -> float:
    """The rate of a solve with these |r_k|^2, which goes on as in its last cycles, those after `begun`."""
    last = np.sqrt(np.array(norms2[begun:][-CYCLE_RESTART - 1 :]) / norms2[0])
    recent = (last[-1] / last[0]) ** (1 / (len(last) - 1))
    if recent >= 1:
        return 1.0
    left = max(np.log(SOLVED / last[-1]) / np.log(recent), 0.0)
    return float((last[-1] * recent**left) ** (1 / (len(norms2) - 1 + left)))


def _weaker(norms2: list[float]) -> bool:
    """Whether the first cycles of a solve gain far more than those that follow, which are others."""
    before, middle, after = (norms2[FIRST_CYCLES + k * LAST_CYCLES] for k in (-1, 0, 1))
    return bool(np.log(before / middle) > WEAKER * np.log(middle / after))


def first_cycles(cycle: Cycle, like: Array, seed: int) -> Begun:
    """The first cycles of a solve of a random residual, all queued before the host looks at one."""
    A = cycle.system.operator
    r = random_fields((*A.shape, 1), A.dtype, like, seed, draw=RATE_DRAW)
    space = GCRSpace(A, r, CYCLE_RESTART, cycle, 0 * block_blas.norms2(r))
    norms2 = [space.r2]
    for _ in range(FIRST_CYCLES):
        space.step()
        norms2.append(space.r2)
    return space, [float(each[0]) for each in norms2]
