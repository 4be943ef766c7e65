"""Adaptive geometric multigrid: its parameters, and the setup.

Near-null vectors of a level are fields ``[site, 2 n, k]`` on which its operator is small. All of a level are
relaxed at once, as the right-hand sides of one block, from random ones: on A x = 0 these keep what the
smoother reduces badly. The hierarchy built from them then refines them: inverse iteration with its own cycle,
which turns them towards the low modes, and everything is built again (arXiv:1005.3043; arXiv:1303.1377,
section 4). The grids below are set up from the restricted vectors of the one above, and refined themselves
where they are to stay: for the refinement of the vectors above it makes no difference.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError, check_whole
from stages.lqcd.kernels import aggregation, block_blas, lane_blas
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, zeros_like
from stages.lqcd.kernels.host_lapack import in_one_blas_thread
from stages.lqcd.multigrid.aggregates import (
    Aggregates,
    Extents,
    Grid,
    Prolongation,
    Transfer,
    aggregates,
    answered_at_end,
    four_extents,
    prolongation,
    random_fields,
    random_on_grid,
)
from stages.lqcd.multigrid.coarse_operator import CoarseOperator, LevelOperator
from stages.lqcd.multigrid.hierarchy import (
    Attempt,
    Coarsest,
    Cycle,
    Hierarchy,
    Level,
    Metadata,
    check_stored,
    coarsest,
    load_level,
    load_moments,
)
from stages.lqcd.multigrid.smoothers import PolynomialSmoother, Recorder, Smoother
from stages.lqcd.multigrid.wilson import FineWilson
from stages.lqcd.solvers.even_odd import even_odd_solve
from stages.lqcd.solvers.gcr import CYCLE_RESTART, GCRSpace, MultigridGCR

NO_GAIN = 0.95
"""Rate of cycles that are as good as none."""

WORSE = 1.5
"""Times the cycles with smoothers fitted each time that a solve with those fitted once may take."""

MEASURED, SOLVED, MOST_CYCLES = 1e-6, 1e-10, 60
"""A rate is measured until a residual is reduced by the first number, in at most `MOST_CYCLES`: low modes,
of which a random residual has little, show at the end. The last cycles say how it goes on to the second."""

FIRST_CYCLES, LAST_CYCLES = 5, 4
"""Those that begin a solve, with smoothers fitted each time, and at least so many that say how it goes on."""

WEAKER = 1.75
"""Times the gain of as many cycles with smoothers fitted once, in logarithms, that those before may have."""

RATE_DRAW = 1000
"""Draw of the random residual; those below are the vectors of the levels."""

ATTEMPTS = 2

LARGEST_FACTOR = 128.0
"""Of the twisted mass on the coarsest grid."""

SMOOTHING, RELAXATION = PolynomialSmoother(8), PolynomialSmoother(8)


class PoorSetup(RuntimeError):  # noqa: N818 - it reads as what it is
    """A setup whose cycle does not converge fast enough, whatever the random start."""


@dataclass(frozen=True)
class LevelParameters:
    """Parameters of a grid that is not the coarsest.

    aggregate: extents (x, y, z, t) of the blocks that become the sites of the grid below. vectors: near-null
    vectors, the number of components of each chirality there. post: smoother after the coarse correction.
    relaxation: that for the random start. refinements: times that the vectors are refined by the hierarchy so
    far. steps, tolerance: of GCR on the grid below in every cycle (K-cycle).
    """

    aggregate: Extents = (4, 4, 4, 4)
    vectors: int = 24
    post: Smoother = SMOOTHING
    relaxation: Smoother = RELAXATION
    refinements: int = 2
    steps: int = 2
    tolerance: float = 0.1

    def __post_init__(self) -> None:
        four_extents("an aggregate", self.aggregate)
        for name, value, least in (
            ("vectors", self.vectors, 1),
            ("refinements", self.refinements, 0),
            ("steps", self.steps, 1),
        ):
            check_whole(f"{name} of a multigrid level", value, least)
        if not 0 <= self.tolerance < 1:
            raise InputError(f"tolerance of a multigrid level must lie between 0 and 1, got {self.tolerance}")

    def level(self, A: LevelOperator, transfer: Transfer, P: Prolongation | None = None) -> Level:
        """The level of an operator, with a smoother fitted each time."""
        return Level(A, transfer, self.post, self.steps, self.tolerance, P)


@dataclass(frozen=True)
class Multigrid:
    """Parameters of a hierarchy: its levels from the finest on, the coarsest grid not counted.

    coarsest_steps: of GCR on the coarsest grid, to the tolerance of the level above, where it is too large
    to be inverted. seed: of the random vectors. largest_rate: a setup whose cycle has a larger rate
    (`measured_rate`) is poor. fine: what makes the finest level's operator of that of the solves.
    """

    levels: tuple[LevelParameters, ...] = field(default_factory=lambda: (LevelParameters(),))
    coarsest_steps: int = 30
    seed: int = 20090311
    largest_rate: float = 0.8
    fine: Callable[[Any], LevelOperator] = FineWilson

    def __post_init__(self) -> None:
        if not self.levels:
            raise InputError("multigrid needs at least one level above the coarsest")
        check_whole("coarsest_steps", self.coarsest_steps, 1)
        check_whole("seed of multigrid", self.seed, 0)
        if not 0 < self.largest_rate < 1:
            raise InputError(f"largest_rate must lie between 0 and 1, got {self.largest_rate}")

    @in_one_blas_thread
    def setup(self, M: Any) -> Hierarchy:
        """The hierarchy of M, built in complex64.

        A poor one is built once more from another seed. Raises InputError where aggregates do not divide a
        grid or have fewer components than vectors or where vectors are more than the kernels take, PoorSetup
        where the second one is poor too.
        """
        fine = self.fine(M)
        blocks, A = self.aggregates(fine.grid), fine.astype(np.complex64)
        if A.operator.xp is not np:
            check_vectors(level.vectors for level in self.levels)
        started, attempts = time.perf_counter(), []
        for seed in range(self.seed, self.seed + ATTEMPTS):
            run = _Setup(self, blocks, seed)
            with answered_at_end():
                cycle, rate = run.fitted(run.build(A, None, 0, stays=True))
                if fine.twisted and cycle.coarsest.inverse is None:
                    cycle, rate = run.with_coarsest_twist(cycle, rate)
            attempts.append(Attempt(seed, rate))
            if rate <= self.largest_rate:
                return Hierarchy(fine, cycle, tuple(attempts), time.perf_counter() - started)
        raise PoorSetup(self._poor(attempts, _rate(first_cycles(cycle, seed)[1])))

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

    def load(self, arrays: Mapping[str, NDArray], metadata: Metadata, M: Any) -> Hierarchy:
        """The hierarchy of which these are `arrays` and `metadata`; InputError unless it is one of M."""
        fine = self.fine(M)
        check_stored(metadata, fine)
        level_aggregates = self.aggregates(fine.grid)
        if [list(blocks.extents) for blocks in level_aggregates] != metadata["aggregates"]:
            stored = metadata["aggregates"]
            raise InputError(f"the stored multigrid setup has aggregates {stored}, not those of these levels")
        A: LevelOperator = fine.astype(np.complex64)
        levels = []
        for number, (blocks, plain) in enumerate(zip(level_aggregates, metadata["moments"], strict=True)):
            transfer, coarse = load_level(arrays, number, blocks, fine.links)
            levels.append(self.levels[number].level(A, transfer).fitted(load_moments(plain)))
            A = coarse
        attempts = tuple(Attempt(int(seed), float(rate)) for seed, rate in metadata["attempts"])
        return Hierarchy(fine, Cycle(tuple(levels), self.coarsest(coarse)), attempts, metadata["seconds"])

    def coarsest(self, A: CoarseOperator) -> Coarsest:
        """The coarsest grid and its solver."""
        return coarsest(A, self.coarsest_steps, self.levels[-1].tolerance)

    def aggregates(self, grid: Grid) -> list[Aggregates]:
        """The aggregates of every level; InputError where they do not divide its grid."""
        chain: list[Aggregates] = []
        for level in self.levels:
            chain.append(aggregates(chain[-1].coarse if chain else grid, tuple(level.aggregate)))
        return chain


@dataclass(frozen=True)
class _Setup:
    """One run of the setup."""

    multigrid: Multigrid
    aggregates: list[Aggregates]
    seed: int

    def build(self, A: LevelOperator, above: Array | None, number: int, stays: bool) -> Cycle:
        """The cycle from level `number` on; above: the restricted vectors of the level before.

        stays: whether they do, as often refined as they should be, or serve to refine the vectors above.
        """
        parameters = self.multigrid.levels[number]
        own = parameters.refinements if stays else 0
        vectors = relaxed(A, self._start(A, above, number), parameters.relaxation)
        cycle = self._cycle(A, vectors, number, stays and not own)
        for passes in reversed(range(own)):
            vectors = refined(A, vectors, cycle)
            del cycle  # its memory is needed
            cycle = self._cycle(A, vectors, number, not passes)
        return cycle

    def _start(self, A: LevelOperator, above: Array | None, number: int) -> Array:
        """Restricted vectors as far as there are any, then random ones."""
        count = self.multigrid.levels[number].vectors
        restricted = 0 if above is None else min(count, above.shape[-1])
        fields = random_on_grid(A.grid, A.components, count, A.links, self.seed, number)
        if above is not None:
            assign(fields[..., :restricted], above[..., :restricted])
        return fields

    def _cycle(self, A: LevelOperator, vectors: Array, number: int, stays: bool) -> Cycle:
        """The cycle of these vectors, with smoothers fitted each time."""
        P, restricted = prolongation(self.aggregates[number], vectors, 2 if stays else 1)
        coarse = A.galerkin(P)
        level = self.multigrid.levels[number].level(A, P.for_cycles(), replace(P))
        if number + 1 == len(self.multigrid.levels):
            return Cycle((level,), self.multigrid.coarsest(coarse))
        deeper = self.build(coarse, restricted(), number + 1, stays)
        return Cycle((level, *deeper.levels), deeper.coarsest)

    def fitted(self, cycle: Cycle) -> tuple[Cycle, float]:
        """The cycle with smoothers that are fitted once, and its rate.

        cycle: the one with smoothers fitted each time, which stay where those fitted once do worse. These
        go on with the solve that the others begin, whose residual is rich in low modes.
        """
        largest, levels, seed = self.multigrid.largest_rate, cycle.levels, self.seed
        recorders = [Recorder(level.smoother) for level in levels]
        begun = first_cycles(cycle.with_smoothers(recorders), seed)
        fits = [level.fitted(recorder.moments) for level, recorder in zip(levels, recorders, strict=True)]
        bound = min(largest, _rate(begun[1]) ** (1 / WORSE))
        found = cycle.with_levels(fits)
        rate = measured_rate(found, seed, begun)
        if rate <= bound and not _weaker(begun[1]):
            return found, rate
        best = cycle, measured_rate(cycle, seed)
        bound = min(largest, best[1] ** (1 / WORSE))
        for number, fit in enumerate(fits if len(fits) > 1 else ()):
            found = cycle.with_levels((*best[0].levels[:number], fit, *levels[number + 1 :]))
            rate = measured_rate(found, seed)
            best = (found, rate) if rate <= bound else best
        return best

    def with_coarsest_twist(self, cycle: Cycle, rate: float) -> tuple[Cycle, float]:
        """The cycle with the twisted mass of the coarsest grid times a factor, and its rate.

        Where GCR solves that grid, it converges the faster, the larger the factor; beyond some factor cycles
        converge less fast (arXiv:1610.02370). It is doubled as long as the rate falls.
        """
        best, factor = (cycle, rate), 2.0
        while factor <= LARGEST_FACTOR:
            A = cycle.coarsest.A.twist_scaled(factor)
            found = replace(cycle, coarsest=self.multigrid.coarsest(A))
            rate = measured_rate(found, self.seed)
            if not rate < best[1]:
                break
            best, factor = (found, rate), 2 * factor
        return best


def relaxed(A: LevelOperator, fields: Array, smoother: Smoother) -> Array:
    """The fields after the smoother's steps on A x = 0, in place; A x is then zero on the odd sites."""
    x = fields[: len(fields) // 2] if A.even else fields
    smoother.improve(A.operator, zeros_like(x), x)
    A.extend(fields)
    return fields


def refined(A: LevelOperator, fields: Array, cycle: Cycle) -> Array:
    """One step of inverse iteration: about A^-1 times the fields, first made of norm one, in place."""
    lane_blas.lane_divide(fields, block_blas.norms(fields).astype(fields.real.dtype), fields)
    return even_odd_solve(A, fields, cycle.apply)


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
    """True if the first cycles of a solve gain far more than those that follow, which are others."""
    before, middle, after = (norms2[FIRST_CYCLES + k * LAST_CYCLES] for k in (-1, 0, 1))
    return bool(np.log(before / middle) > WEAKER * np.log(middle / after))


def check_vectors(counts: Iterable[int]) -> None:
    """Raise InputError where a level has more near-null vectors than a GPU takes."""
    for count in counts:
        if count > aggregation.MOST_ON_GPU:
            raise InputError(
                f"{count} near-null vectors, but multigrid on a GPU takes at most {aggregation.MOST_ON_GPU} "
                "on a level: take fewer, or compute on CPUs"
            )
