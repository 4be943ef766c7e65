"""Stages behind a target for the stochastic error: moments of the noise, and what the vectors achieve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline import At, Chunks, Dims, stage
from stages.loops.correlator import Correlator, flavour_pieces
from stages.loops.costs import noise_cost
from stages.loops.current_loops import FLAVOURS, FlavourLoops
from stages.lqcd.analysis.allocation import Counts, VarianceModel
from stages.lqcd.analysis.disconnected import SPATIAL
from stages.lqcd.analysis.stochastic_error import correlator_variance, loop_variance
from stages.lqcd.analysis.stochastic_error import noise_moments as moments_of
from stages.shared.costs import small


class LoopNoise(NamedTuple):
    """Stochastic errors at one fixed gauge field, float64, lattice units; flavours as in `FLAVOURS`.

    Pieces: sloppy solves, and the correction where there are fine ones. Moments are of single noise vectors
    (`stages.lqcd.analysis.stochastic_error`).
    """

    vectors: Annotated[np.ndarray, Dims("piece")]
    loops: Annotated[np.ndarray, Dims("flavour", "piece", "other_piece")]
    linear: Annotated[np.ndarray, Dims("flavour", "piece", "other_piece", "time")]
    quadratic: Annotated[
        np.ndarray, Dims("flavour", "piece", "other_piece", "third_piece", "fourth_piece", "time")
    ]
    loops_error: Annotated[np.ndarray, Dims("flavour")]
    """Stochastic error of one spatial J_i(t), root mean square over i and t."""
    correlator_error: Annotated[np.ndarray, Dims("flavour", "time")]
    """Stochastic error of C(t)."""


class TraceAllocation(NamedTuple):
    """Errors of the quantity that a target names, after each round; float64, lattice units."""

    vectors: Annotated[np.ndarray, Dims("round", "piece")]
    error: Annotated[np.ndarray, Dims("round")]
    """Achieved stochastic error on one configuration: root mean square over configurations and the window."""
    predicted_error: Annotated[np.ndarray, Dims("round")]
    """By the round before; NaN of the pilot."""
    predicted_seconds: Annotated[np.ndarray, Dims("round")]
    """Of work for all loops, by the round before; NaN of the pilot."""
    seconds: Annotated[np.ndarray, Dims("round")]
    """Of work for all loops, NaN of the last round, whose time is in the records of its chunks."""
    asked: Annotated[np.ndarray, Dims()]
    """The target as an error of the quantity; 0 where it is a share of gauge noise that noise hides."""
    gauge: Annotated[np.ndarray, Dims()]
    """Gauge noise of one configuration: the spread over configurations without its stochastic part."""
    mean_error: Annotated[np.ndarray, Dims()]
    """Stochastic error of the mean over configurations."""
    linear: Annotated[np.ndarray, Dims("piece", "other_piece")]
    quadratic: Annotated[np.ndarray, Dims("piece", "other_piece", "third_piece", "fourth_piece")]
    """With `linear` the model of the variance: moments averaged over configurations and the window."""


@stage(version="2", over=("config",), labels={"flavour": FLAVOURS}, cost=noise_cost)
def loop_noise(loops: Chunks[FlavourLoops], fine: Chunks[FlavourLoops] | None = None, *, at: At) -> LoopNoise:
    """Stochastic errors of loops and of C(t), and the moments that predict them for other counts.

    Raises InputError for fewer than 4 noise vectors of any kind.
    """
    flavours = flavour_pieces(loops, fine, "current")
    counts = [len(piece.noise) for piece in flavours[0]]
    noise_moments = [moments_of(flavour) for flavour in flavours]
    return LoopNoise(
        np.array(counts),
        np.stack([moments.loops for moments in noise_moments]),
        np.stack([moments.linear for moments in noise_moments]),
        np.stack([moments.quadratic for moments in noise_moments]),
        np.sqrt([loop_variance(moments.loops, counts) for moments in noise_moments]),
        np.sqrt([correlator_variance(moments, counts) for moments in noise_moments]),
    )


@dataclass(frozen=True)
class ErrorTarget:
    """The stochastic error that noise vectors are to reach.

    quantity: 'loops', one J_i(t), or 'correlator', C(t) for t in `window` (first and last). error: absolute
    and of one configuration; or ratio: of stochastic error to gauge noise.
    """

    quantity: str
    flavour: str
    window: Sequence[int]
    error: float | None = None
    ratio: float | None = None


def quantity_text(parameters: Mapping[str, Any]) -> str:
    """`C(t), t = 2 ... 8 of light`: the quantity in the parameters of `trace_allocation`."""
    first, last = parameters["window"]
    of = "one J_i(t)" if parameters["quantity"] == "loops" else f"C(t), t = {first} ... {last}"
    return f"{of} of {parameters['flavour']}"


@stage(version="2", cost=small)
def trace_allocation(
    noise: Chunks[LoopNoise],
    correlators: Chunks[Correlator],
    *,
    at: At,
    target: ErrorTarget,
    earlier: Sequence[Mapping[str, Any]] = (),
) -> TraceAllocation:
    """The error of the noise vectors so far, against the target; results and decisions of earlier rounds.

    earlier: of each round `vectors`, `error`, `seconds`, and what it wanted of the next one: `next_vectors`,
    `predicted_error`, `predicted_seconds`.
    """
    results, index = [result for _, result in noise], FLAVOURS.index(target.flavour)
    times = slice(target.window[0], target.window[1] + 1)
    model = variance_model(results, target.quantity, index, times)
    counts = tuple(int(count) for count in results[0].vectors)
    variance = model.variance(counts)
    gauge = gauge_noise([result for _, result in correlators], target.quantity, index, times, variance)
    asked = target.error if target.error is not None else (target.ratio or 0.0) * gauge
    at.record(decisions=list(earlier), configurations=len(results))
    return TraceAllocation(
        vectors=np.array([*(entry["vectors"] for entry in earlier), counts]),
        error=np.array([*(entry["error"] for entry in earlier), sqrt(variance)]),
        predicted_error=np.array([np.nan, *(entry["predicted_error"] for entry in earlier)]),
        predicted_seconds=np.array([np.nan, *(entry["predicted_seconds"] for entry in earlier)]),
        seconds=np.array([*(entry["seconds"] for entry in earlier), np.nan]),
        asked=np.array(asked),
        gauge=np.array(gauge),
        mean_error=np.array(sqrt(variance / len(results))),
        linear=model.linear,
        quadratic=model.quadratic,
    )


def variance_model(results: Sequence[LoopNoise], quantity: str, flavour: int, times: slice) -> VarianceModel:
    """The moments of a quantity, averaged over configurations and, of a correlator, over `times`."""
    if quantity == "loops":
        linear = np.mean([result.loops[flavour] for result in results], axis=0)
        return VarianceModel(linear, np.zeros((len(linear),) * 4))
    return VarianceModel(
        np.mean([result.linear[flavour, ..., times] for result in results], axis=(0, -1)),
        np.mean([result.quadratic[flavour, ..., times] for result in results], axis=(0, -1)),
    )


def gauge_noise(
    results: Sequence[Correlator], quantity: str, flavour: int, times: slice, stochastic: float
) -> float:
    """Spread over configurations, root mean square of all values, without the `stochastic` variance.

    0 where that is the larger, or where there is a single configuration.
    """
    if len(results) < 2:
        return 0.0
    values: NDArray[np.float64]
    if quantity == "loops":
        values = np.array([result.loops[flavour, SPATIAL] for result in results])
    else:
        values = np.array([result.correlator[flavour, times] for result in results])
    return sqrt(max(values.var(axis=0, ddof=1).mean() - stochastic, 0.0))


def model_of(allocation: TraceAllocation) -> tuple[VarianceModel, Counts]:
    """The variance as a function of counts, and the counts that were measured last."""
    counts = tuple(int(count) for count in allocation.vectors[-1])
    return VarianceModel(allocation.linear, allocation.quadratic), counts
