"""Results of trials of solvers, which are alike in all workflows, and what candidates cost by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from pipeline import At, Dims, Node
from stages.lqcd.solvers.trial import CONVERGED, Candidate, Trials, check_one_converged
from stages.shared.work import NARROWER


class SolverTrials(NamedTuple):
    """Costs of each candidate for a block of right-hand sides; NaN where it was not tried or failed."""

    setup_seconds: Annotated[np.ndarray, Dims("solver")]
    """Once per configuration, without eigenvectors."""
    seconds_per_rhs: Annotated[np.ndarray, Dims("solver", "system")]
    iterations: Annotated[np.ndarray, Dims("solver", "system")]
    residual: Annotated[np.ndarray, Dims("solver", "system")]
    """Largest |b - A x| / |b| of the systems solved."""


def measured(at: At, trials: Trials, names: Sequence[str], kinds: Sequence[str], remedy: str) -> SolverTrials:
    """The trials of candidates by name, with what is recorded of them; kinds: names of all systems.

    Why a candidate is not to be had is recorded, and so are right-hand sides as planned, which are in no key:
    a choice stands when a campaign grows. Raises InputError where no candidate reaches all tolerances.
    """
    tried = [Candidate.parse(name) for name in names]
    done = trials.measure(tried, lambda *parts: at.progress(*parts))
    how = {str(candidate): trial.how for candidate, trial in done.items()}
    check_one_converged(how, remedy)
    planned = {system.name: system.planned for system in trials.systems}
    at.record(
        how=how,
        planned={kind: planned.get(kind, 0) for kind in kinds},
        columns=trials.systems[0].sources.shape[-1],
    )
    places = [kinds.index(system.name) for system in trials.systems]
    result = SolverTrials(np.full(len(tried), np.nan), *np.full((3, len(tried), len(kinds)), np.nan))
    for row, candidate in enumerate(tried):
        trial = done.get(candidate)
        if trial and trial.how == CONVERGED:
            result.setup_seconds[row] = trial.setup_seconds
            for field in ("seconds_per_rhs", "iterations", "residual"):
                getattr(result, field)[row, places] = getattr(trial, field)
    return result


def tried_blocks(node: Node) -> tuple[list[str], int, int]:
    """Precisions that a node of trials tries, the width of blocks asked for, and the widest."""
    tried = [Candidate.parse(name) for name in node.parameters["candidates"]]
    precisions = dict.fromkeys(each.precision for each in tried)
    return list(precisions), tried[0].block, max(each.block for each in tried)


@dataclass(frozen=True)
class Eigensolve:
    """Seconds of the search for the low modes of trials, and products with single vectors that it took.

    precision: that of solvers with such iterations.
    """

    seconds: float = 0.0
    products: int = 0
    precision: str = "double"

    def of(self, name: str, trials: SolverTrials, candidates: Sequence[str]) -> float:
        """Seconds of a search for those that the candidate named takes: the part p of all.

        Products are nearly as many for fewer vectors, as the filter's degree falls with their number; they
        take what iterations take. The rest is linear algebra with all pairs of vectors, p^2 of it.
        """
        if (part := Candidate.parse(name).part) in (0.0, 1.0):
            return part * self.seconds
        sizes = np.array([[NARROWER[Candidate.parse(each).precision]] for each in candidates])
        with np.errstate(divide="ignore"):  # no iterations where the vectors span the whole space
            product = float(np.nanmin(trials.seconds_per_rhs / trials.iterations / sizes))
        products = min(self.seconds, self.products * product * NARROWER[self.precision])
        return products + part**2 * (self.seconds - products)


def costs(
    trials: SolverTrials, candidates: Sequence[str], statistics: Mapping[str, Any], eigensolve: Eigensolve
) -> dict[str, float]:
    """Seconds per configuration of each candidate that converged, by the statistics of trials."""
    planned = np.array(list(statistics["planned"].values()))
    seconds = trials.setup_seconds + np.nansum(trials.seconds_per_rhs * planned, axis=1)
    return {
        name: float(cost) + eigensolve.of(name, trials, candidates)
        for name, cost in zip(candidates, seconds, strict=True)
        if statistics["how"].get(name) == CONVERGED
    }


def cheapest(cost: Mapping[str, float]) -> str:
    """The name of the least."""
    return min(cost, key=lambda name: cost[name])
