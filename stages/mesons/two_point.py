"""Stages of meson two-point functions: of each source, and averaged over the ensemble."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Chunks, Dims, FromParameter, Keyed, Resources, stage
from stages.base.errors import InputError
from stages.lqcd.analysis import jackknife
from stages.lqcd.analysis.effective_mass import effective_mass
from stages.lqcd.kernels.transfer import to_backend
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.gammas import CHANNELS, NAMES
from stages.lqcd.spectroscopy.little_group import Row, channels_at, check_at_rest, operators_in, undivided
from stages.lqcd.spectroscopy.mesons import meson_correlators
from stages.lqcd.spectroscopy.operators import BILINEARS
from stages.lqcd.spectroscopy.quark_sources import SourcePlace
from stages.mesons.costs import average_cost, two_point_cost
from stages.mesons.propagator import Propagator

MOMENTA = FromParameter("momenta", "direction", ("x", "y", "z"))
GAMMAS = FromParameter("gammas")
AVERAGE_LABELS: dict[str, Sequence[str] | FromParameter] = {
    "gamma": GAMMAS,
    "channel": FromParameter("channels"),
    "direction": ("x", "y", "z"),
}
LATER = Keyed(later=("gammas", "channels"))
AT_REST = tuple(CHANNELS)

Momenta = Sequence[tuple[int, int, int]]
Channels = Sequence[str] | Mapping[str, Sequence[Sequence[Row]]]
"""Names of channels at rest, or the rows of each at each momentum."""


class MesonCorrelators(NamedTuple):
    """C_G(p, t) of one configuration for all sixteen Dirac matrices, lattice units.

    Sums of them that channels need come after them. t counts from the source. Signs and normalisation:
    `stages.lqcd.spectroscopy.mesons`.
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
    """Mean over the Dirac matrices of a channel (`stages.lqcd.spectroscopy.gammas.CHANNELS` at rest,
    `stages.lqcd.spectroscopy.little_group` at a momentum); NaN where there is no such channel."""
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
    keyed=Keyed(later=("gammas",)),
    labels={"gamma": GAMMAS, "momentum": MOMENTA},
    cost=two_point_cost,
)
def meson_two_point(
    propagator: Propagator,
    *,
    at: At,
    extents: tuple[int, int, int, int],
    momenta: Momenta = ((0, 0, 0),),
    gammas: Sequence[str] = NAMES,
) -> MesonCorrelators:
    """Two-point functions of psibar G psi at source and sink, source by source, from one propagator.

    extents: of the lattice, x y z t. momenta: of the sink, in units of 2 pi / L, three whole numbers each.
    gammas: G, the sixteen Dirac matrices and sums such as 'GammaX + GammaY'. Raises InputError for a
    propagator without all source spins.
    """
    lattice, correlators = Lattice(extents), []
    for number, label in enumerate(at["source"]):
        column = propagator.propagator[..., number, :]  # reads its pieces where it lies in the store
        field = to_backend(column, at.backend) if isinstance(column, np.ndarray) else column
        place = place_of(str(label), int(propagator.time[number]))
        correlators.append(meson_correlators(field, lattice, place, gammas, momenta))
    return MesonCorrelators(
        np.stack(correlators),
        np.asarray(propagator.residual),
        np.asarray(propagator.full_residual),
        np.asarray(propagator.iterations),
    )


def place_of(label: str, time: int) -> SourcePlace:
    """Place of a source: as its label says, or on a time slice for one that a user named."""
    return SourcePlace(time, SourcePlace.parse(label).point if SourcePlace.names(label) else None)


@stage(version="1", keyed=LATER, labels=AVERAGE_LABELS, cost=average_cost)
def meson_average(
    correlators: Chunks[MesonCorrelators],
    *,
    at: At,
    momenta: Momenta,
    jackknife_bin: int = 1,
    gammas: Sequence[str] = NAMES,
    channels: Channels = AT_REST,
) -> MesonAverage:
    """Means over sources, then over configurations; errors by jackknife over bins of `jackknife_bin`.

    momenta, gammas: those of the correlators. channels: names of
    `stages.lqcd.spectroscopy.gammas.CHANNELS`, for mesons at rest, else
    `stages.lqcd.spectroscopy.little_group.channels_at` of these. An incomplete last bin is left out; errors
    of one bin are NaN. Raises InputError where no bin is left, and for names at a momentum.
    """
    given = ((where, each.correlator) for where, each in correlators)
    return average_of(given, at, momenta, jackknife_bin, gammas, channels)


def average_of(
    correlators: Iterable[tuple[At, np.ndarray]],
    at: At,
    momenta: Momenta,
    jackknife_bin: int,
    gammas: Sequence[str],
    channels: Channels,
) -> MesonAverage:
    """Averages of correlators ``[source, gamma, momentum, time]`` by coordinates. Raises InputError."""
    means = means_of_configurations((where, np.real(each)) for where, each in correlators)
    binned = jackknife.bin_means(means, jackknife_bin)
    samples, mean = jackknife.jackknife_samples(binned), binned.mean(axis=0)
    channel, channel_samples = (
        channel_means(each, gammas, channels, CHANNELS, momenta) for each in (mean, samples)
    )
    at.record(configurations=len(binned) * jackknife_bin, configurations_given=len(means), bins=len(binned))
    return MesonAverage(
        mean,
        jackknife.jackknife_error(samples),
        samples,
        channel,
        jackknife.jackknife_error(channel_samples),
        effective_mass(channel),
        jackknife.jackknife_error(effective_mass(channel_samples)),
        np.array(momenta),
    )


def dirac_channels(
    momenta: Sequence[Sequence[int]], extents: tuple[int, int, int, int]
) -> tuple[tuple[str, ...], Channels]:
    """The Dirac matrices, and sums of them, to measure at some momenta, and the channels that they make.

    At rest in a cube these are the defaults of the stages.
    """
    families = {name: [(gamma,) for gamma in gammas] for name, gammas in CHANNELS.items()}
    channels = channels_at(families, momenta, extents, BILINEARS)
    if undivided(channels, families, momenta):
        return NAMES, AT_REST
    return tuple(dict.fromkeys([*NAMES, *operators_in(channels)])), channels


def means_of_configurations(arrays: Iterable[tuple[At, np.ndarray]]) -> list[np.ndarray]:
    """The mean of each configuration over its sources, of arrays ``[source, ...]`` with their coordinates."""
    of_config: dict[str, list[np.ndarray]] = {}
    for where, each in arrays:
        of_config.setdefault(str(where.one("config")), []).append(each)
    return [np.concatenate(sources).mean(axis=0) for sources in of_config.values()]


def channel_means(
    correlator: np.ndarray,
    labels: Sequence[str],
    channels: Channels,
    families: Mapping[str, Sequence[str]],
    momenta: Momenta,
) -> np.ndarray:
    """Means ``[..., channel, momentum, time]`` of correlators ``[..., label, momentum, time]``.

    families: labels of each channel at rest. NaN at momenta where there is no such channel. Raises InputError
    for the names of channels at rest with another momentum, and for rows of other momenta.
    """
    check_at_rest(channels, momenta)
    if not isinstance(channels, Mapping):
        rows = [[list(labels).index(label) for label in families[name]] for name in channels]
        return np.stack([correlator[..., row, :, :].mean(axis=-3) for row in rows], axis=-3)
    means = np.full((*correlator.shape[:-3], len(channels), *correlator.shape[-2:]), np.nan)
    for number, by_momentum in enumerate(channels.values()):
        if len(by_momentum) != len(momenta):
            raise InputError(f"channels of {len(by_momentum)} momenta, but correlators of {len(momenta)}")
        for k, members in enumerate(by_momentum):
            if members:
                terms = [w * correlator[..., list(labels).index(label), k, :] for (label,), w in members]
                means[..., number, k, :] = np.sum(terms, axis=0)
    return means
