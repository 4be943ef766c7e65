"""Stages of the ensemble's averages of distilled mesons, and of the levels of their correlation matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline import At, Chunks, Dims, stage
from stages.distillation.costs import levels_cost
from stages.distillation.distilled_two_point import LaphMesons, Momenta
from stages.errors import InputError
from stages.lqcd.analysis import gevp, jackknife
from stages.mesons.costs import average_cost
from stages.mesons.two_point import AVERAGE_LABELS, MesonAverage, average_of, means_of_configurations

Basis = Sequence[Sequence[str]]
"""Rows of operators as text. The matrices of the rows are averaged: those that have the same levels, such as
the polarisations of a vector meson at rest."""

DIRECTIONS = {"direction": ("x", "y", "z")}


class LaphLevels(NamedTuple):
    """Levels of correlation matrices with jackknife errors, float64, lattice units; basis by basis."""

    eigenvalue: Annotated[np.ndarray, Dims("momentum", "level", "time")]
    """lambda(t, t0)."""
    eigenvalue_error: Annotated[np.ndarray, Dims("momentum", "level", "time")]
    energy: Annotated[np.ndarray, Dims("momentum", "level", "time")]
    """Effective energies; NaN where there is none."""
    energy_error: Annotated[np.ndarray, Dims("momentum", "level", "time")]
    basis: Annotated[np.ndarray, Dims("level")]
    """int64, the number of a level's basis."""
    momentum: Annotated[np.ndarray, Dims("momentum", "direction")]
    """int64, p in units of 2 pi / L."""


@stage(version="1", labels={**AVERAGE_LABELS, **DIRECTIONS}, cost=average_cost)
def laph_average(
    mesons: Chunks[LaphMesons], *, at: At, momenta: Momenta, jackknife_bin: int = 1
) -> MesonAverage:
    """Means over sources, then over configurations, as `stages.mesons.two_point.meson_average` has them.

    momenta: those of the mesons. An incomplete last bin is left out; errors of one bin are NaN. Raises
    InputError where no bin is left.
    """
    return average_of(((where, each.correlator) for where, each in mesons), at, momenta, jackknife_bin)


@stage(version="1", labels=DIRECTIONS, cost=levels_cost)
def laph_levels(
    mesons: Chunks[LaphMesons],
    *,
    at: At,
    momenta: Momenta,
    operators: Sequence[str],
    bases: Sequence[Basis],
    t0: int,
    jackknife_bin: int = 1,
) -> LaphLevels:
    """Generalised eigenvalues of each basis at each momentum, lowest energy first.

    The method is that of `stages.lqcd.analysis.gevp`.

    momenta, operators: those of the mesons; bases: of some of the operators. Raises InputError where a
    correlation matrix is not positive definite at t0, and where no bin is left. Errors of one bin are NaN.
    """
    rows = [_rows(basis, operators) for basis in bases]
    matrices = means_of_configurations((where, each.matrix) for where, each in mesons)
    binned = jackknife.bin_means(matrices, jackknife_bin)
    samples = jackknife.jackknife_samples(binned)
    at.record(
        configurations=len(binned) * jackknife_bin, configurations_given=len(matrices), bins=len(binned)
    )
    mean, by_momentum = binned.mean(axis=0), []
    for number, momentum in enumerate(momenta):
        arguments = mean[number], samples[:, number], list(operators)
        each = [_levels(*arguments, row, t0, list(momentum)) for row in rows]
        by_momentum.append([np.concatenate(levels) for levels in zip(*each, strict=True)])
    eigenvalue, eigenvalue_error, energy, energy_error = map(np.stack, zip(*by_momentum, strict=True))
    numbers = np.repeat(np.arange(len(rows)), [row.shape[1] for row in rows])
    return LaphLevels(eigenvalue, eigenvalue_error, energy, energy_error, numbers, np.array(momenta))


def _rows(basis: Basis, operators: Sequence[str]) -> NDArray[np.int64]:
    """Numbers of a basis' operators ``[row, operator]``. Raises InputError."""
    missing = [text for row in basis for text in row if text not in operators]
    if missing:
        raise InputError(
            f"the operator {missing[0]!r} of a basis is none of those of the correlation matrix, "
            f"{', '.join(operators)}: add it there"
        )
    widths = {len(row) for row in basis}
    if len(widths) != 1 or not all(widths):
        raise InputError(
            f"the rows of a basis, whose matrices are averaged, have one length, got {[*map(list, basis)]}"
        )
    return np.array([[list(operators).index(text) for text in row] for row in basis])


def _levels(
    mean: NDArray, samples: NDArray, operators: list[str], rows: NDArray, t0: int, momentum: list[int]
) -> gevp.Energies:
    """Energies of matrices ``[operator, source operator, time]``, the mean and its jackknife samples."""
    parts = [[part[..., row[:, None], row, :] for row in rows] for part in (mean, samples)]
    try:
        return gevp.spectrum(np.mean(parts[0], axis=0), np.mean(parts[1], axis=0), t0)
    except InputError as error:
        names = "; ".join(", ".join(operators[number] for number in row) for row in rows)
        raise InputError(f"operators {names} at momentum {momentum}: {error}") from None
