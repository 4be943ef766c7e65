"""Stages of meson two-point functions: of each source, and averaged over the ensemble."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Chunks, Dims, FromParameter, Resources, stage
from stages.lqcd.analysis import jackknife
from stages.lqcd.analysis.effective_mass import effective_mass
from stages.lqcd.kernels.transfer import to_backend
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.gammas import CHANNELS, NAMES
from stages.lqcd.spectroscopy.mesons import meson_correlators
from stages.lqcd.spectroscopy.quark_sources import SourcePlace
from stages.mesons.costs import average_cost, two_point_cost
from stages.mesons.propagator import Propagator

MOMENTA = FromParameter("momenta", "direction", ("x", "y", "z"))
AVERAGE_LABELS = {"gamma": NAMES, "channel": tuple(CHANNELS)}


class MesonCorrelators(NamedTuple):
    """C_G(p, t) of one configuration for all sixteen Dirac matrices, lattice units.

    t counts from the source. Signs and normalisation: `stages.lqcd.spectroscopy.mesons`.
    """

    correlator: Annotated[np.ndarray, Dims("source", "gamma", "momentum", "time")]
    """complex128."""
    residual: Annotated[np.ndarray, Dims("source", "column")]
    """Of the propagator, as there."""
    full_residual: Annotated[np.ndarray, Dims("source", "column")]
    iterations: Annotated[np.ndarray, Dims("source", "column")]


class MesonAverage(NamedTuple):
    """Averages over sources and configurations with jackknife errors, float64, lattice units."""

    correlator: Annotated[np.ndarray, Dims("gamma", "momentum", "time")]
    """Re C_G(p, t): the imaginary part averages to zero."""
    correlator_error: Annotated[np.ndarray, Dims("gamma", "momentum", "time")]
    correlator_samples: Annotated[np.ndarray, Dims("sample", "gamma", "momentum", "time")]
    """The same without one bin of configurations each."""
    channel_correlator: Annotated[np.ndarray, Dims("channel", "momentum", "time")]
    """Mean over the Dirac matrices of a channel (`stages.lqcd.spectroscopy.gammas.CHANNELS`)."""
    channel_error: Annotated[np.ndarray, Dims("channel", "momentum", "time")]
    effective_mass: Annotated[np.ndarray, Dims("channel", "momentum", "time")]
    """Of the channel's correlator, an energy where p is not 0; NaN where there is none."""
    effective_mass_error: Annotated[np.ndarray, Dims("channel", "momentum", "time")]
    momentum: Annotated[np.ndarray, Dims("momentum", "direction")]
    """int64, p in units of 2 pi / L."""


@stage(
    version="1",
    over=("config", "source"),
    resources=Resources(device=1),
    labels={"gamma": NAMES, "momentum": MOMENTA},
    cost=two_point_cost,
)
def meson_two_point(
    propagator: Propagator,
    *,
    at: At,
    extents: tuple[int, int, int, int],
    momenta: Sequence[tuple[int, int, int]] = ((0, 0, 0),),
) -> MesonCorrelators:
    """Two-point functions of psibar G psi at source and sink, source by source, from one propagator.

    extents: of the lattice, x y z t. momenta: of the sink, in units of 2 pi / L, three whole numbers each.
    Raises InputError for a propagator without all source spins.
    """
    lattice, correlators = Lattice(extents), []
    for number, label in enumerate(at["source"]):
        column = propagator.propagator[..., number, :]  # reads its pieces where it lies in the store
        field = to_backend(column, at.backend) if isinstance(column, np.ndarray) else column
        place = place_of(str(label), int(propagator.time[number]))
        correlators.append(meson_correlators(field, lattice, place, NAMES, momenta))
    return MesonCorrelators(
        np.stack(correlators),
        np.asarray(propagator.residual),
        np.asarray(propagator.full_residual),
        np.asarray(propagator.iterations),
    )


def place_of(label: str, time: int) -> SourcePlace:
    """Place of a source: as its label says, or on a time slice for one that a user named."""
    return SourcePlace(time, SourcePlace.parse(label).point if SourcePlace.names(label) else None)


@stage(version="1", labels={**AVERAGE_LABELS, "direction": ("x", "y", "z")}, cost=average_cost)
def meson_average(
    correlators: Chunks[MesonCorrelators],
    *,
    at: At,
    momenta: Sequence[tuple[int, int, int]],
    jackknife_bin: int = 1,
) -> MesonAverage:
    """Means over sources, then over configurations; errors by jackknife over bins of `jackknife_bin`.

    momenta: those of the correlators. An incomplete last bin is left out; errors of one bin are
    NaN. Raises InputError where no bin is left.
    """
    return average_of(((where, each.correlator) for where, each in correlators), at, momenta, jackknife_bin)


def average_of(
    correlators: Iterable[tuple[At, np.ndarray]],
    at: At,
    momenta: Sequence[tuple[int, int, int]],
    jackknife_bin: int,
) -> MesonAverage:
    """Averages of correlators ``[source, gamma, momentum, time]`` by coordinates. Raises InputError."""
    means = means_of_configurations((where, np.real(each)) for where, each in correlators)
    binned = jackknife.bin_means(means, jackknife_bin)
    samples, mean = jackknife.jackknife_samples(binned), binned.mean(axis=0)
    channels, channel_samples = channel_means(mean), channel_means(samples)
    at.record(configurations=len(binned) * jackknife_bin, configurations_given=len(means), bins=len(binned))
    return MesonAverage(
        mean,
        jackknife.jackknife_error(samples),
        samples,
        channels,
        jackknife.jackknife_error(channel_samples),
        effective_mass(channels),
        jackknife.jackknife_error(effective_mass(channel_samples)),
        np.array(momenta),
    )


def means_of_configurations(arrays: Iterable[tuple[At, np.ndarray]]) -> list[np.ndarray]:
    """The mean of each configuration over its sources, of arrays ``[source, ...]`` with their coordinates."""
    of_config: dict[str, list[np.ndarray]] = {}
    for where, each in arrays:
        of_config.setdefault(str(where.one("config")), []).append(each)
    return [np.concatenate(sources).mean(axis=0) for sources in of_config.values()]


def channel_means(correlator: np.ndarray) -> np.ndarray:
    """Means of correlators ``[..., gamma, momentum, time]`` over each channel's matrices."""
    rows = [[NAMES.index(name) for name in names] for names in CHANNELS.values()]
    return np.stack([correlator[..., row, :, :].mean(axis=-3) for row in rows], axis=-3)
