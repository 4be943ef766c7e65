"""The stage that measures solvers of loops on the first noise of a campaign, deflated and not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Dims, Keyed, Resources, stage
from stages.errors import InputError
from stages.loops.costs import trials_cost
from stages.loops.current_loops import MASSES, Masses
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import PARITIES
from stages.lqcd.noise import Dilution, Noise, dilute, noise_vectors
from stages.lqcd.noise.probing import probed
from stages.lqcd.solvers.deflation import DeflatedSolver, StaggeredDeflation
from stages.lqcd.solvers.even_odd import Method
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.named import Solve, precision_for
from stages.lqcd.solvers.reliable_solver import MAX_ITERATIONS
from stages.lqcd.solvers.solution import column_blocks
from stages.lqcd.solvers.trial import Trial, TrialSystem, check_one_converged, measure, outcome, repeated

PLAIN = ("batched_cg", "block_cgrq")
PREFIX = "deflated "
DEFLATED = tuple(PREFIX + name for name in PLAIN)
SOLVERS = (*PLAIN, *DEFLATED)
"""In the order in which they are tried: what needs no eigenvectors first."""
ACCURACIES = ("sloppy", "fine")


Kind = tuple[str, str, str]
"""A mass, an accuracy and a parity, by name."""


@dataclass(frozen=True)
class TrialSolves:
    """Solves of a campaign, as `Solve` but for the solver, with the tolerances of both accuracies.

    planned: noise vectors times probes per configuration, sloppy and fine.
    """

    sloppy: float
    fine: float | None
    planned: Sequence[int]
    precision: str = "double-single"
    max_iterations: int = MAX_ITERATIONS
    block: int = 16


@dataclass(frozen=True)
class NoiseSample:
    """The first noise vectors and probes of a campaign; deflated_noise: without the part of low modes."""

    vectors: int
    probes: int
    deflated_noise: bool = False


class SolverTrials(NamedTuple):
    """Costs of each solver for a block of noise; NaN where it was not tried, or failed, as records say."""

    seconds_per_rhs: Annotated[np.ndarray, Dims("solver", "mass", "accuracy", "parity")]
    iterations: Annotated[np.ndarray, Dims("solver", "mass", "accuracy", "parity")]
    residual: Annotated[np.ndarray, Dims("solver", "mass", "accuracy", "parity")]
    """Largest |b - A x| / |b|."""


@stage(
    version="2",
    over=("config",),
    resources=Resources(device=1),
    keyed=Keyed(without=("planned", "max_iterations"), backend=True),
    labels={"solver": SOLVERS, "mass": MASSES, "accuracy": ACCURACIES, "parity": PARITIES},
    cost=trials_cost,
)
def solver_trials(
    dslash: StaggeredDslash,
    deflation: StaggeredDeflation | None = None,
    *,
    at: At,
    candidates: Sequence[str],
    masses: Masses,
    solves: TrialSolves,
    noise: Noise,
    sample: NoiseSample,
) -> SolverTrials:
    """Seconds of `candidates`, some of `SOLVERS`, on the first right-hand sides of a campaign.

    Those are a block of the first noise vectors and probes on even sites, and one on odd sites, where low
    modes are less exact, for each mass and each tolerance; noise as for
    `stages.loops.current_loops.current_loops`. What is planned is recorded as right-hand sides of one mass
    and is in no key: a choice that follows from this stands when the campaign grows. Eigenvectors are
    prepared elsewhere, and their seconds are no part of these. Timings are not reproducible. Raises
    InputError where no candidate reaches all tolerances.
    """
    scheme, label = Dilution.parse(noise.dilution), str(at.one("config"))
    blocks = [_first_block(dslash, parity, label, noise, sample, solves.block) for parity in range(2)]
    if sample.deflated_noise:
        space = _required(deflation)
        blocks = [space.on(parity).remainder(b) for parity, b in enumerate(blocks)]
    problems = _problems(dslash, masses, solves, blocks)
    solvers = {name: _candidate(name, solves, deflation) for name in candidates}
    kinds, columns = list(problems.values()), blocks[0].shape[-1]
    trials = measure(kinds, solvers, columns, repeated, progress=lambda *done: at.progress(*done))
    how = {name: outcome(kinds, each) for name, each in trials.items()}
    check_one_converged(how, "use a larger mass")
    subsets = len(scheme.subsets(dslash.lattice))
    rhs = {name: count * subsets for name, count in zip(ACCURACIES, solves.planned, strict=True)}
    at.record(how=how, planned=rhs, columns=columns)
    return _table(list(problems), trials)


def _first_block(
    dslash: StaggeredDslash, parity: int, label: str, noise: Noise, sample: NoiseSample, width: int
) -> Array:
    """The first diluted right-hand sides of a campaign on a parity, ``[site, 3, N]``, N up to `width`."""
    lattice, xp = dslash.lattice, dslash.xp
    vectors = noise_vectors(lattice, parity, label, noise.seed, range(sample.vectors), noise.kind, xp=xp)
    fields = probed(vectors, lattice, parity, range(sample.probes))
    partition = Dilution.parse(noise.dilution).partition(lattice, parity)
    return dilute(fields, partition, column_blocks(fields.shape[-1] * len(partition.subsets), width)[0])


def _problems(
    dslash: StaggeredDslash, masses: Masses, solves: TrialSolves, blocks: Sequence[Array]
) -> dict[Kind, TrialSystem]:
    """Problems to be solved, of each mass, each accuracy that there is, and each parity; blocks by parity."""
    outer = dslash.astype(np.complex128)
    of_mass = zip(MASSES, (masses.light, masses.strange), strict=True)
    of_accuracy = zip(ACCURACIES, (solves.sloppy, solves.fine), strict=True)
    return {
        (name, accuracy, PARITIES[parity]): TrialSystem(
            f"{name} quark, {accuracy}, {PARITIES[parity]} sites",
            NormalOperator(outer, mass, parity),
            b,
            tolerance,
        )
        for (name, mass), (accuracy, tolerance), (parity, b) in product(
            of_mass, of_accuracy, enumerate(blocks)
        )
        if tolerance is not None
    }


def _candidate(
    name: str, solves: TrialSolves, deflation: StaggeredDeflation | None
) -> Callable[[float], Method]:
    """The solver of `SOLVERS` for a tolerance, in the precision asked for or the nearest that it has."""
    plain = name.removeprefix(PREFIX)
    precision = precision_for(plain, solves.precision)

    def solver(tolerance: float) -> KrylovSolver:
        return Solve(plain, tolerance, precision, solves.max_iterations).of_positive()

    if name == plain:
        return solver
    space = _required(deflation)
    return lambda tolerance: DeflatedSolver(solver(tolerance), space)


def _required(deflation: StaggeredDeflation | None) -> StaggeredDeflation:
    if deflation is None:
        raise InputError("deflated solves and deflated noise need a deflation: give one")
    return deflation


def _table(kinds: Sequence[Kind], trials: Mapping[str, Sequence[Trial]]) -> SolverTrials:
    """Trials of each solver on the first of these kinds of systems."""
    shape = (len(SOLVERS), len(MASSES), len(ACCURACIES), len(PARITIES))
    table = SolverTrials(*(np.full(shape, np.nan) for _ in SolverTrials._fields))
    for name, of_solver in trials.items():
        for (mass, accuracy, parity), trial in zip(kinds, of_solver, strict=False):
            kind = MASSES.index(mass), ACCURACIES.index(accuracy), PARITIES.index(parity)
            if trial.converged:
                for field, array in table._asdict().items():
                    array[SOLVERS.index(name), *kind] = getattr(trial, field)
    return table
