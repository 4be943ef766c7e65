"""Stages of connected correlators: of a configuration, from low modes and walls, and of the ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline import At, Chunks, Dims, FromParameter, stage
from stages.base.errors import InputError
from stages.connected.costs import average_cost, correlator_cost
from stages.connected.low_modes import LowLow
from stages.connected.walls import WallCorrelators
from stages.lqcd.analysis import jackknife
from stages.lqcd.analysis.stochastic_error import NoiseMoments, linear_moments
from stages.lqcd.estimators.truncated import Piece, estimate
from stages.lqcd.spectroscopy.vector_currents import CURRENTS

LABELS = {"operator": FromParameter("operators"), "current": FromParameter("currents")}


class ConnectedCorrelator(NamedTuple):
    """C(t) of one quark on one configuration: traces over the slice, float64, lattice units.

    C(t) = (1/T) sum_t0 Tr [P_t0+t O G P_t0 O G], M = 2 m + D (`stages.lqcd.spectroscopy.connected`).
    """

    correlator: Annotated[np.ndarray, Dims("current", "time")]
    """Mean over the operators of a current, which are those of x, y and z."""
    error: Annotated[np.ndarray, Dims("current", "time")]
    """Stochastic, at this gauge field."""
    low: Annotated[np.ndarray, Dims("current", "time")]
    """The part of low modes, exact over all sources; 0 without modes."""
    operator_correlator: Annotated[np.ndarray, Dims("operator", "time")]
    """By each operator."""


class ConnectedAverage(NamedTuple):
    """Averages over configurations with jackknife errors, float64, lattice units; traces over the slice."""

    correlator: Annotated[np.ndarray, Dims("quark", "current", "time")]
    correlator_error: Annotated[np.ndarray, Dims("quark", "current", "time")]
    correlator_samples: Annotated[np.ndarray, Dims("sample", "quark", "current", "time")]
    """The correlator without one bin of configurations each."""
    stochastic_error: Annotated[np.ndarray, Dims("quark", "current", "time")]
    """The part of the error that walls make; it is in `correlator_error`."""


def linear_in_c(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers linear in averages of C, as they are shown: all averages, errors and tables pass here."""
    return values


def by_current(values: NDArray, operators: Sequence[str], currents: Sequence[str]) -> NDArray:
    """Means ``[..., current, time]`` over each current's operators, of values ``[..., operator, time]``."""
    rows = [[list(operators).index(label) for label in CURRENTS[name]] for name in currents]
    return np.stack([values[..., row, :].mean(axis=-2) for row in rows], axis=-2)


def wall_pieces(
    walls: Chunks[WallCorrelators], fine: Chunks[WallCorrelators] | None = None
) -> tuple[Piece, ...]:
    """The rest ``[wall, operator, time]`` by sloppy solves, and its correction on walls with fine ones."""
    sloppy, low = _of_walls(walls)
    piece = Piece(sloppy.noise, sloppy.values - low)
    return (piece, _of_walls(fine)[0].minus(sloppy)) if fine else (piece,)


def wall_moments(
    walls: Sequence[Chunks[WallCorrelators]], operators: Sequence[str], current: str
) -> NoiseMoments:
    """Moments of the noise of a current's C(t) on one configuration, from its walls, and fine ones if any.

    Raises InputError for fewer than 4 walls of a kind.
    """
    pieces = wall_pieces(*walls)
    return linear_moments([Piece(p.noise, by_current(p.values, operators, [current])[:, 0]) for p in pieces])


def _of_walls(chunks: Chunks[WallCorrelators]) -> tuple[Piece, NDArray[np.float64]]:
    results = [(at["source"], walls) for at, walls in chunks]
    numbers = tuple(int(number) for source, _ in results for number in source)
    full, low = (np.concatenate([np.real(walls[k]) for _, walls in results]) for k in (0, 1))
    return Piece(numbers, full), low


@stage(version="1", over=("config",), labels=LABELS, cost=correlator_cost)
def connected_correlator(
    walls: Chunks[WallCorrelators],
    fine: Chunks[WallCorrelators],
    low: LowLow | None = None,
    *,
    at: At,
    operators: Sequence[str],
    currents: Sequence[str],
) -> ConnectedCorrelator:
    """C(t) = LL + rest: sloppy solves on all walls, fine ones on the first few to correct them.

    Unbiased for any tolerance and modes (arXiv:1208.4349). fine: the walls themselves where no others are.
    operators: those of the walls. currents: names of `stages.lqcd.spectroscopy.vector_currents.CURRENTS`.
    Raises InputError for fewer than two walls.
    """
    pieces = wall_pieces(walls, fine)
    means = [Piece(each.noise, by_current(each.values, operators, currents)) for each in pieces]
    rest, of_current = estimate(pieces), estimate(means)
    exact = low.low_low if low else np.zeros_like(rest.mean)
    part = by_current(exact, operators, currents)
    sources = "all sources of low modes, random walls for the rest" if low else "random walls"
    at.record(normalisation="slice trace", sources=sources, walls=[len(piece.noise) for piece in pieces])
    return ConnectedCorrelator(part + of_current.mean, of_current.error, part, exact + rest.mean)


@stage(
    version="1",
    labels={"quark": FromParameter("quarks"), "current": FromParameter("currents")},
    cost=average_cost,
)
def connected_average(
    *correlators: Chunks[ConnectedCorrelator],
    at: At,
    quarks: Sequence[str],
    currents: Sequence[str],
    jackknife_bin: int = 1,
) -> ConnectedAverage:
    """Means over configurations of all quarks; errors and samples by jackknife over bins of `jackknife_bin`.

    correlators: of each of `quarks`. An incomplete last bin is left out; one bin has no errors: they are NaN.
    Raises InputError where no bin is left.
    """
    if len(correlators) != len(quarks):
        raise InputError(f"correlators of {len(correlators)} quarks, but names of {len(quarks)}")
    results = [[each for _, each in chunks] for chunks in correlators]
    data, noise = (
        np.stack([[getattr(each, name) for each in chunks] for chunks in results], axis=1)
        for name in ("correlator", "error")
    )
    binned = jackknife.bin_means(data, jackknife_bin)
    used = len(binned) * jackknife_bin
    samples = jackknife.jackknife_samples(binned)
    counts = {"configurations": used, "configurations_given": len(data), "bins": len(binned)}
    at.record(normalisation="slice trace", **counts)
    error, stochastic = jackknife.jackknife_error(samples), np.sqrt((noise[:used] ** 2).sum(axis=0)) / used
    return ConnectedAverage(*map(linear_in_c, (binned.mean(axis=0), error, samples, stochastic)))
