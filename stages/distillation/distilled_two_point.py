"""Stages of meson two-point functions from perambulators, or from sink projections of stochastic LapH."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline import At, Chunks, Dims, FromParameter, Keyed, Resources, stage
from stages.base.errors import InputError
from stages.distillation.costs import distilled_cost, stochastic_cost
from stages.distillation.operator_elementals import Elementals
from stages.distillation.perambulator import Perambulator, SinkProjection
from stages.lqcd.distillation.columns import StochasticColumns
from stages.lqcd.kernels.fields import on_one_gpu
from stages.lqcd.kernels.transfer import to_backend
from stages.lqcd.spectroscopy.distilled_mesons import (
    ElementalTable,
    QuarkLine,
    correlation_matrix,
    dirac_correlators,
    perambulator_pairs,
    stochastic_pairs,
)
from stages.lqcd.spectroscopy.gammas import NAMES
from stages.lqcd.spectroscopy.operators import MesonOperator, words_of
from stages.mesons.two_point import GAMMAS, MOMENTA, Momenta

LINES = ("quark", "antiquark")
OPERATORS = FromParameter("operators")
LABELS: dict[str, Sequence[str] | FromParameter] = {
    "gamma": GAMMAS,
    "line": LINES,
    "momentum": MOMENTA,
    "operator": OPERATORS,
    "source_operator": OPERATORS,
}


@dataclass(frozen=True)
class ElementalAxes:
    """Meaning of the axes of elementals: extents of the lattice, x y z t, and the displacements in order."""

    extents: tuple[int, int, int, int]
    displacements: Sequence[str] = ("",)


class LaphMesons(NamedTuple):
    """Two-point functions of one configuration, summed over the source's slice, lattice units.

    Time counts from the source. Signs and normalisation: `stages.lqcd.spectroscopy.distilled_mesons`.
    """

    correlator: Annotated[np.ndarray, Dims("source", "gamma", "momentum", "time")]
    """complex128, of psibar G psi for all sixteen Dirac matrices, and sums that channels need."""
    matrix: Annotated[np.ndarray, Dims("source", "momentum", "operator", "source_operator", "time")]
    """complex128, in the order of the operators given."""
    source_time: Annotated[np.ndarray, Dims("source")]
    """int64, the source's slice."""
    noise: Annotated[np.ndarray, Dims("source", "line")]
    """int64, the noise vectors of both quark lines, whose interchange is averaged over; -1 without noise."""


@stage(
    version="1",
    over=("config", "source"),
    resources=Resources(device=1),
    keyed=Keyed(later=("gammas",)),
    labels=LABELS,
    cost=distilled_cost,
)
def distilled_mesons(
    perambulator: Perambulator,
    elementals: Elementals,
    other: Perambulator | None = None,
    *,
    at: At,
    axes: ElementalAxes,
    momenta: Momenta = ((0, 0, 0),),
    operators: Sequence[str] = ("Gamma5",),
    gammas: Sequence[str] = NAMES,
) -> LaphMesons:
    """Mesons of full distillation, source time by source time; of twisted quarks charged ones.

    other: perambulators of the other flavour; then they are the connected part of neutral mesons, the mean
    over both flavours. axes: of the elementals. momenta: of the mesons; they or their opposites are among
    those of the elementals. operators: those of the correlation matrix, such as 'Gamma5' or '0.5 Identity[+x]
    - 0.5 Identity[-x]' (`stages.lqcd.spectroscopy.operators`). gammas: the sixteen Dirac matrices and sums
    such as 'GammaX + GammaY'. Raises InputError.
    """
    flavours = [each.perambulator for each in (perambulator, other) if each is not None]
    table = table_of(elementals, axes, flavours[0].shape[-1])
    parsed, k = [MesonOperator.parse(text) for text in operators], table.eigenvectors
    measurements, times = [], [int(time) for time in perambulator.source_time]
    for number, time in enumerate(times):
        with on_one_gpu(at.backend):
            columns = [
                to_backend(np.ascontiguousarray(tau[number][:, :, :k]), at.backend) for tau in flavours
            ]
            arguments = table, time, momenta, words_of(parsed)
            pairs = perambulator_pairs(columns[0], *arguments, antiquark=columns[-1])
            if other is not None:
                pairs = (pairs + perambulator_pairs(columns[1], *arguments, antiquark=columns[0])) / 2
        measurements.append(_measured(pairs, parsed, gammas))
        at.progress(number + 1, len(times))
    return _joined(measurements, times, [(-1, -1)] * len(times))


@stage(
    version="1",
    over=("config",),
    resources=Resources(device=1),
    keyed=Keyed(later=("gammas",)),
    labels=LABELS,
    cost=stochastic_cost,
)
def stochastic_mesons(
    projections: Chunks[SinkProjection],
    columns: Chunks[StochasticColumns],
    elementals: Elementals,
    *,
    at: At,
    axes: ElementalAxes,
    momenta: Momenta = ((0, 0, 0),),
    operators: Sequence[str] = ("Gamma5",),
    gammas: Sequence[str] = NAMES,
) -> LaphMesons:
    """Mesons of stochastic LapH of a configuration: a source for each slice and pair of noise vectors.

    columns: those of the sources that were projected. Parameters as for `distilled_mesons`. Raises InputError
    also where a slice has one noise vector alone.
    """
    parsed = [MesonOperator.parse(text) for text in operators]
    measurements: list[tuple[NDArray, NDArray]] = []
    times: list[int] = []
    noise: list[tuple[int, int]] = []
    sources = _by_start(projections, columns)
    for done, (start, each) in enumerate(sources.items(), start=1):
        table = table_of(elementals, axes, next(iter(each.values())).columns.eigenvectors)
        with on_one_gpu(at.backend):
            for time, lines in _lines(start, each, table.eigenvectors, at.backend):
                for pair in combinations(sorted(lines), 2):
                    one, other = (lines[number] for number in pair)
                    both = [(one, other), (other, one)]
                    pairs = [stochastic_pairs(*two, table, time, momenta, words_of(parsed)) for two in both]
                    measurements.append(_measured((pairs[0] + pairs[1]) / 2, parsed, gammas))
                    times.append(time)
                    noise.append(pair)
        at.progress(done, len(sources))
    return _joined(measurements, times, noise)


class _Projected(NamedTuple):
    """The projection of one source: its number among those of a chunk."""

    projection: NDArray
    number: int
    columns: StochasticColumns

    def line(self, time: int, eigenvectors: int, backend: str) -> QuarkLine:
        """The quark line of its source on a slice."""
        subsets = self.columns.subsets
        width = subsets.spin * subsets.eigenvector
        rho = self.columns.on_slice(time, range(self.number * width, (self.number + 1) * width))
        projection = np.ascontiguousarray(self.projection[self.number][:, :, :eigenvectors])
        return QuarkLine(to_backend(projection, backend), to_backend(rho, backend))


def _by_start(
    projections: Chunks[SinkProjection], columns: Chunks[StochasticColumns]
) -> dict[int, dict[int, _Projected]]:
    """Projections by the subset of times of their source, and by the number of their noise vector."""
    by_start: dict[int, dict[int, _Projected]] = defaultdict(dict)
    for (_, projected), (_, named) in zip(projections, columns, strict=True):
        for number, (start, noise) in enumerate(named.sources):
            by_start[start][noise] = _Projected(projected.projection, number, named)
    for start, each in by_start.items():
        if len(each) < 2:
            raise InputError(
                f"the source at t = {start} has one noise vector, but the two quark lines of a meson need "
                "one each: take 2 vectors or more"
            )
    return by_start


def _lines(
    start: int, by_noise: dict[int, _Projected], eigenvectors: int, backend: str
) -> Iterator[tuple[int, dict[int, QuarkLine]]]:
    """The slices of a subset of times, each with the quark lines from there by noise vector."""
    columns = next(iter(by_noise.values())).columns
    for time in range(start, columns.time_extent, columns.subsets.time):
        yield time, {noise: each.line(time, eigenvectors, backend) for noise, each in by_noise.items()}


def table_of(elementals: Elementals, axes: ElementalAxes, eigenvectors: int) -> ElementalTable:
    """The elementals by momentum and displacement. Raises InputError."""
    x, y, z = np.asarray(elementals.momentum).T.tolist()
    momenta = tuple(zip(x, y, z, strict=True))
    return ElementalTable(
        elementals.elementals, momenta, tuple(axes.displacements), axes.extents, eigenvectors
    )


def _measured(
    pairs: NDArray, operators: Sequence[MesonOperator], gammas: Sequence[str]
) -> tuple[NDArray, NDArray]:
    """Correlators ``[gamma, momentum, time]`` and the matrix ``[momentum, A, B, time]``."""
    local = [dirac_correlators(each[:, 0, 0], gammas) for each in pairs]
    words = words_of(operators)
    return np.stack(local, axis=1), np.stack([correlation_matrix(each, operators, words) for each in pairs])


def _joined(
    measurements: Sequence[tuple[NDArray, NDArray]], times: list[int], noise: list[tuple[int, int]]
) -> LaphMesons:
    correlators, matrices = zip(*measurements, strict=True)
    return LaphMesons(np.stack(correlators), np.stack(matrices), np.array(times), np.array(noise))
