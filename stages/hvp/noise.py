"""The noise of C(t) at one gauge field, by single walls and noise vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline import At, Chunks, Cost, Dims, FromParameter, Node, stage
from stages.connected.correlator import by_current, wall_pieces
from stages.connected.walls import WallCorrelators
from stages.loops.correlator import flavour_pieces
from stages.loops.current_loops import DIFFERENCE, FlavourLoops
from stages.loops.noise_allocation import LoopNoise
from stages.lqcd.analysis.hvp_sum import fold
from stages.lqcd.analysis.stochastic_error import noise_deviations, pair_deviations
from stages.lqcd.estimators.truncated import Piece
from stages.lqcd.lattice.geometry import Lattice
from stages.shared.costs import RECORD, of_lattice


class HvpNoise(NamedTuple):
    """What single walls or noise vectors add to C(t), or JJ(t), of one configuration, lattice units."""

    deviation: Annotated[np.ndarray, Dims("vector", "row", "slice")]
    """Folded; products summed over vectors are the covariances of the noise. No more vectors than numbers of
    each: of many, the triangle of their QR decomposition, which has the same products."""


@of_lattice
def noise_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of the deviations of all vectors."""
    inputs = node.inputs[: node.parameters.get("accuracies", len(node.inputs))]
    vectors = sum(len(each.over.get(dim, ())) for each in inputs for dim in ("source", "noise"))
    numbers = len(node.parameters["rows"]) * (lattice.time_extent // 2 + 1)
    return Cost(stored=8 * min(vectors, numbers) * numbers + RECORD)


LABELS = {"row": FromParameter("rows")}


@stage(version="1", over=("config",), labels=LABELS, cost=noise_cost)
def wall_noise(
    *walls: Chunks[WallCorrelators],
    at: At,
    rows: Sequence[str],
    operators: Sequence[str],
    currents: Sequence[str],
    accuracies: int = 1,
) -> HvpNoise:
    """Of all quarks, which have the same walls; of each quark sloppy ones and, with 2 accuracies, fine ones.

    rows: a name for each current of each quark. Raises InputError for fewer than two walls of a kind.
    """
    deviations = []
    for first in range(0, len(walls), accuracies):
        pieces = wall_pieces(*walls[first : first + accuracies])
        means = [Piece(each.noise, by_current(each.values, operators, currents)) for each in pieces]
        deviations.append(noise_deviations(means))
    return _of(np.concatenate(deviations, axis=1))


@stage(version="1", over=("config",), labels=LABELS, cost=noise_cost)
def pair_noise(
    noise: LoopNoise,
    loops: Chunks[FlavourLoops],
    fine: Chunks[FlavourLoops] | None = None,
    *,
    at: At,
    rows: Sequence[str] = ("disconnected",),
) -> HvpNoise:
    """Of light - strange: each vector with all others; scaled to the unbiased errors of C(t) in `noise`."""
    pieces = flavour_pieces(loops, fine, "current")[DIFFERENCE]
    return _of(pair_deviations(pieces, noise.correlator_error[DIFFERENCE])[:, None])


def _of(deviations: NDArray[np.float64]) -> HvpNoise:
    folded = fold(deviations)
    flat = folded.reshape(len(folded), -1)
    few = np.asarray(np.linalg.qr(flat, mode="r")) if len(flat) > flat.shape[1] else flat
    return HvpNoise(few.reshape(-1, *folded.shape[1:]))
