"""Stages of the ensemble's averages of distilled mesons, and of the levels of their correlation matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline import At, Chunks, Dims, FromParameter, Keyed, stage
from stages.base.errors import InputError
from stages.distillation.costs import levels_cost
from stages.distillation.distilled_two_point import LaphMesons
from stages.lqcd.analysis import gevp, jackknife
from stages.lqcd.spectroscopy.gammas import CHANNELS, NAMES
from stages.lqcd.spectroscopy.little_group import Row, check_at_rest
from stages.mesons.costs import average_cost
from stages.mesons.two_point import (
    AT_REST,
    AVERAGE_LABELS,
    LATER,
    Channels,
    Families,
    MesonAverage,
    Momenta,
    averages,
    means_of_configurations,
)

Basis = Sequence[Sequence[str]]
"""Rows of operators as text. The matrices of the rows are averaged: those that have the same levels, such as
the polarisations of a vector meson at rest."""

Bases = Sequence[Basis] | Mapping[str, Sequence[Sequence[Row]]]
"""Bases at rest, or the rows of each channel at each momentum."""


class LaphLevels(NamedTuple):
    """Levels of correlation matrices with jackknife errors, float64, lattice units; basis by basis.

    NaN at momenta where there is no such channel.
    """

    eigenvalue: Annotated[np.ndarray, Dims("momentum", "level", "time")]
    """lambda(t, t0)."""
    eigenvalue_error: Annotated[np.ndarray, Dims("momentum", "level", "time")]
    energy: Annotated[np.ndarray, Dims("momentum", "level", "time")]
    """Effective energies; NaN where there is none."""
    energy_error: Annotated[np.ndarray, Dims("momentum", "level", "time")]
    basis: Annotated[np.ndarray, Dims("level")]
    """int64, the number of a level's basis, or of its channel."""
    momentum: Annotated[np.ndarray, Dims("momentum", "direction")]
    """int64, p in units of 2 pi / L."""


@stage(version="1", keyed=LATER, labels=AVERAGE_LABELS, cost=average_cost)
def laph_average(
    mesons: Chunks[LaphMesons],
    *,
    at: At,
    momenta: Momenta,
    jackknife_bin: int = 1,
    gammas: Sequence[str] = NAMES,
    channels: Channels = AT_REST,
) -> MesonAverage:
    """Means over sources, then over configurations, as `stages.mesons.two_point.meson_average` has them.

    Parameters and errors are those there.
    """
    given = ((where, each.correlator) for where, each in mesons)
    return MesonAverage(*averages(given, at, momenta, jackknife_bin, Families(gammas, channels, CHANNELS)))


@stage(
    version="1",
    keyed=Keyed(without=("level_names",)),
    labels={"level": FromParameter("level_names"), "direction": ("x", "y", "z")},
    cost=levels_cost,
)
def laph_levels(
    mesons: Chunks[LaphMesons],
    *,
    at: At,
    momenta: Momenta,
    operators: Sequence[str],
    bases: Bases,
    t0: int,
    jackknife_bin: int = 1,
    level_names: Sequence[str] = (),
) -> LaphLevels:
    """Generalised eigenvalues of each basis at each momentum, lowest energy first.

    The method is that of `stages.lqcd.analysis.gevp`.

    momenta, operators: those of the mesons. bases: of some of the operators, for mesons at rest, else
    `stages.lqcd.spectroscopy.little_group.channels_at` of these by name. level_names: labels of the levels in
    the result. Raises InputError where a correlation matrix is not positive definite at t0, where no bin is
    left, and for several rows of a basis at rest with another momentum. Errors of one bin are NaN.
    """
    channels = list(bases.values()) if isinstance(bases, Mapping) else _at_rest(bases, momenta)
    rows = [[_rows(row, operators) for row in channel] for channel in channels]
    matrices = means_of_configurations((where, each.matrix) for where, each in mesons)
    binned = jackknife.bin_means(matrices, jackknife_bin)
    samples = jackknife.jackknife_samples(binned)
    at.record(
        configurations=len(binned) * jackknife_bin, configurations_given=len(matrices), bins=len(binned)
    )
    widths = [max(len(numbers) for members in channel for numbers, _ in members) for channel in rows]
    numbers = np.repeat(np.arange(len(rows)), widths)
    shape = (len(momenta), len(numbers), binned.shape[-1])
    found = gevp.Energies(*(np.full(shape, np.nan) for _ in gevp.Energies._fields))
    for number, momentum in enumerate(momenta):
        arguments = binned.mean(axis=0)[number], samples[:, number], list(operators)
        for k, channel in enumerate(rows):
            if channel[number]:
                levels_there = _levels(*arguments, channel[number], t0, list(momentum))
                for values, each in zip(found, levels_there, strict=True):
                    values[number, numbers == k] = each
    return LaphLevels(*found, numbers, np.array(momenta))


def _at_rest(bases: Sequence[Basis], momenta: Momenta) -> list[list[list[Row]]]:
    """Rows of bases at each momentum, with equal weights. Raises InputError."""
    for basis in bases:
        if len({len(row) for row in basis}) != 1 or not all(basis):
            raise InputError(
                "the rows of a basis, whose matrices are averaged, have one length, got "
                f"{[*map(list, basis)]}"
            )
        if len(basis) > 1:
            check_at_rest(basis, momenta)
    return [[[Row(tuple(row), 1 / len(basis)) for row in basis] for _ in momenta] for basis in bases]


def _rows(rows: Sequence[Row], operators: Sequence[str]) -> list[tuple[NDArray[np.int64], float]]:
    """Numbers of the operators of rows, and their weights. Raises InputError."""
    missing = [text for texts, _ in rows for text in texts if text not in operators]
    if missing:
        raise InputError(
            f"the operator {missing[0]!r} of a basis is none of those of the correlation matrix, "
            f"{', '.join(operators)}: add it there"
        )
    return [(np.array([list(operators).index(text) for text in texts]), weight) for texts, weight in rows]


def _levels(
    mean: NDArray,
    samples: NDArray,
    operators: list[str],
    rows: Sequence[tuple[NDArray, float]],
    t0: int,
    momentum: list[int],
) -> gevp.Energies:
    """Energies of matrices ``[operator, source operator, time]``, the mean and its jackknife samples."""
    channel, channel_samples = (
        np.mean([len(rows) * weight * part[..., row[:, None], row, :] for row, weight in rows], axis=0)
        for part in (mean, samples)
    )
    try:
        return gevp.spectrum(channel, channel_samples, t0)
    except InputError as error:
        names = "; ".join(", ".join(operators[number] for number in row) for row, _ in rows)
        raise InputError(f"operators {names} at momentum {momentum}: {error}") from None
