"""The stage that measures solvers of loops on the first noise of a campaign, deflated and not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from pipeline import At, FromParameter, Keyed, Resources, stage
from stages.base.errors import InputError
from stages.ensemble.expected_solves import Layouts
from stages.loops.costs import trials_cost
from stages.loops.current_loops import MASSES, Masses
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import PARITIES
from stages.lqcd.noise import Dilution, Noise, dilute, noise_vectors
from stages.lqcd.noise.probing import probed
from stages.lqcd.solvers.deflation import StaggeredSpace
from stages.lqcd.solvers.frame import MAX_ITERATIONS
from stages.lqcd.solvers.solution import column_blocks
from stages.lqcd.solvers.trial import Candidate, Trials, TrialSystem, low_modes_of, positive_solver
from stages.shared.solver_trials import SolverTrials, measured

ACCURACIES = ("sloppy", "fine")
SYSTEMS = tuple(
    f"{mass} {accuracy} {parity}" for mass, accuracy, parity in product(MASSES, ACCURACIES, PARITIES)
)
"""Kinds of linear systems."""


@dataclass(frozen=True)
class TrialSolves:
    """Solves of a campaign, as `Solve` but for what is chosen, with the tolerances of both accuracies.

    planned: noise vectors times probes per configuration, sloppy and fine.
    """

    sloppy: float
    fine: float | None
    planned: Sequence[int]
    max_iterations: int = MAX_ITERATIONS


@dataclass(frozen=True)
class NoiseSample:
    """The first noise vectors and probes of a campaign; deflated_noise: without the part of low modes."""

    vectors: int
    probes: int
    deflated_noise: bool = False


@stage(
    version="3",
    over=("config",),
    resources=Resources(device=1),
    keyed=Keyed(without=("planned", "max_iterations"), backend=True),
    labels={"solver": FromParameter("candidates"), "system": SYSTEMS},
    cost=trials_cost,
)
def solver_trials(
    dslash: StaggeredDslash,
    deflation: StaggeredSpace | None = None,
    *,
    at: At,
    candidates: Sequence[str],
    masses: Masses,
    solves: TrialSolves,
    noise: Noise,
    sample: NoiseSample,
) -> SolverTrials:
    """Seconds of `candidates` (`stages.lqcd.solvers.trial`) on the first right-hand sides of a campaign.

    Those are a block of the first noise vectors and probes on even sites, and one on odd sites, where low
    modes are less exact, for each mass and each tolerance; noise as for
    `stages.loops.current_loops.current_loops`. What is planned is recorded as right-hand sides of each kind
    and is in no key: a choice that follows from this stands when the campaign grows. Eigenvectors are
    prepared elsewhere, and their seconds are no part of these. Timings are not reproducible. Raises
    InputError where no candidate reaches all tolerances.
    """
    low_modes = low_modes_of(candidates, deflation)
    widest = max(Candidate.parse(name).block for name in candidates)
    label = str(at.one("config"))
    blocks = [_first_block(dslash, parity, label, noise, sample, widest) for parity in range(2)]
    if sample.deflated_noise:
        if deflation is None:
            raise InputError("deflated noise needs the modes that it is orthogonal to: give a deflation")
        blocks = [deflation.on(parity).remainder(b) for parity, b in enumerate(blocks)]
    systems = _systems(dslash, masses, solves, noise, blocks)
    trials = Trials(systems, partial(positive_solver, low_modes, solves.max_iterations))
    return measured(at, trials, candidates, SYSTEMS, "use a larger mass")


def _first_block(
    dslash: StaggeredDslash, parity: int, label: str, noise: Noise, sample: NoiseSample, width: int
) -> Array:
    """The first diluted right-hand sides of a campaign on a parity, ``[site, 3, N]``, N up to `width`."""
    lattice, xp = dslash.lattice, dslash.xp
    vectors = noise_vectors(lattice, parity, label, noise.seed, range(sample.vectors), noise.kind, xp=xp)
    fields = probed(vectors, lattice, parity, range(sample.probes))
    partition = Dilution.parse(noise.dilution).partition(lattice, parity)
    return dilute(fields, partition, column_blocks(fields.shape[-1] * len(partition.subsets), width)[0])


def _systems(
    dslash: StaggeredDslash, masses: Masses, solves: TrialSolves, noise: Noise, blocks: Sequence[Array]
) -> list[TrialSystem]:
    """Systems of each mass, each accuracy that there is, and each parity; blocks by parity."""
    layouts, dilution = Layouts(dslash), Dilution.parse(noise.dilution)
    of_accuracy = zip((solves.sloppy, solves.fine), solves.planned, strict=True)

    def operator(mass: float, parity: int, candidate: Candidate) -> NormalOperator:
        return NormalOperator(layouts.of(candidate).astype(np.complex128), mass, parity)

    kinds: list[Any] = list(product((masses.light, masses.strange), of_accuracy, enumerate(blocks)))
    return [
        TrialSystem(
            name,
            partial(operator, mass, parity),
            b,
            tolerance,
            planned * len(dilution.partition(dslash.lattice, parity).subsets),
        )
        for name, (mass, (tolerance, planned), (parity, b)) in zip(SYSTEMS, kinds, strict=True)
        if tolerance is not None
    ]
