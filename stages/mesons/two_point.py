"""Stages of two-point functions of Wilson and staggered mesons: source by source, and averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Chunks, Dims, FromParameter, Keyed, Resources, stage
from stages.base.errors import InputError
from stages.ensemble.smeared_links import SmearedLinks
from stages.lqcd.analysis import jackknife
from stages.lqcd.analysis.effective_mass import effective_mass, without_oscillation
from stages.lqcd.kernels.fields import contiguous
from stages.lqcd.kernels.transfer import to_backend
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.gammas import CHANNELS, NAMES
from stages.lqcd.spectroscopy.little_group import Row, channels_at, check_at_rest, operators_in, undivided
from stages.lqcd.spectroscopy.mesons import meson_correlators
from stages.lqcd.spectroscopy.operators import BILINEARS
from stages.lqcd.spectroscopy.quark_sources import SourcePlace
from stages.lqcd.spectroscopy.staggered_mesons import source_sign, staggered_correlator
from stages.lqcd.spectroscopy.staggered_operators import MULTIPLETS, SpinTaste, terms_of
from stages.mesons.costs import average_cost, staggered_two_point_cost, two_point_cost
from stages.mesons.propagator import Propagator, StaggeredPropagators

MOMENTA = FromParameter("momenta", "direction", ("x", "y", "z"))
GAMMAS = FromParameter("gammas")
CHANNEL_LABELS: dict[str, Sequence[str] | FromParameter] = {
    "channel": FromParameter("channels"),
    "direction": ("x", "y", "z"),
}
AVERAGE_LABELS: dict[str, Sequence[str] | FromParameter] = {"gamma": GAMMAS, **CHANNEL_LABELS}
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


class StaggeredCorrelators(NamedTuple):
    """C(p, t) of one configuration for each operator, lattice units; t counts from the source.

    Operators, signs and normalisation: `stages.lqcd.spectroscopy.staggered_mesons`.
    """

    correlator: Annotated[np.ndarray, Dims("source", "operator", "momentum", "time")]
    """complex128."""
    residual: Annotated[np.ndarray, Dims("source", "column")]
    """Of the solutions, of which operators take theirs in order."""
    full_residual: Annotated[np.ndarray, Dims("source", "column")]
    iterations: Annotated[np.ndarray, Dims("source", "column")]


class StaggeredAverage(NamedTuple):
    """Averages over sources and configurations with jackknife errors, float64, lattice units."""

    correlator: Annotated[np.ndarray, Dims("operator", "momentum", "time")]
    """Re C(p, t): the imaginary part averages to zero."""
    correlator_error: Annotated[np.ndarray, Dims("operator", "momentum", "time")]
    correlator_samples: Annotated[np.ndarray, Dims("sample", "operator", "momentum", "time")]
    """The same without one bin of configurations each."""
    channel_correlator: Annotated[np.ndarray, Dims("channel", "momentum", "time")]
    """Mean over the operators of a channel; NaN at momenta where there is no such channel."""
    channel_error: Annotated[np.ndarray, Dims("channel", "momentum", "time")]
    effective_mass: Annotated[np.ndarray, Dims("channel", "momentum", "time")]
    """Of [C(t-1) + 2 C(t) + C(t+1)] / 4 of the channel, in which the oscillating state is suppressed; NaN
    where there is none."""
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
    other: Propagator | None = None,
    *,
    at: At,
    extents: tuple[int, int, int, int],
    momenta: Momenta = ((0, 0, 0),),
    gammas: Sequence[str] = NAMES,
) -> MesonCorrelators:
    """Two-point functions of psibar G psi at source and sink, source by source, from one propagator.

    With twisted quarks these are charged mesons. other: the propagators of the other flavour; then they are
    the connected part of neutral ones, the mean over both flavours.

    extents: of the lattice, x y z t. momenta: of the sink, in units of 2 pi / L, three whole numbers each.
    gammas: G, the sixteen Dirac matrices and sums such as 'GammaX + GammaY'. Raises InputError for a
    propagator without all source spins.
    """
    lattice, correlators = Lattice(extents), []
    for number, label in enumerate(at["source"]):
        place, fields = place_of(str(label), int(propagator.time[number])), []
        for each in (propagator,) if other is None else (propagator, other):
            column = each.propagator[..., number, :]  # reads its pieces where it lies in the store
            fields.append(to_backend(column, at.backend) if isinstance(column, np.ndarray) else column)
        measured = meson_correlators(fields[0], lattice, place, gammas, momenta, *fields[1:])
        if other is not None:
            measured += meson_correlators(fields[1], lattice, place, gammas, momenta, fields[0])
            measured /= 2
        correlators.append(measured)
    return MesonCorrelators(
        np.stack(correlators),
        np.asarray(propagator.residual),
        np.asarray(propagator.full_residual),
        np.asarray(propagator.iterations),
    )


@stage(
    version="1",
    over=("config", "source"),
    resources=Resources(device=1),
    labels={"operator": FromParameter("operators"), "momentum": MOMENTA},
    cost=staggered_two_point_cost,
)
def staggered_two_point(
    propagators: StaggeredPropagators,
    links: SmearedLinks | None = None,
    *,
    at: At,
    extents: tuple[int, int, int, int],
    operators: Sequence[str],
    momenta: Momenta = ((0, 0, 0),),
) -> StaggeredCorrelators:
    """Two-point functions of operators such as 'GX-G1', the same at source and sink, source by source.

    extents: of the lattice, x y z t. operators: those of the sources, in their order, and then sums of them,
    such as 'GX-G1 + GY-G1'. links: of displacements. momenta: of the sink, in units of 2 pi / L. Raises
    InputError.
    """
    lattice, parts = Lattice(extents), [terms_of(each) for each in operators]
    parsed = {label: SpinTaste.parse(label) for terms in parts for label in terms}
    measured = np.zeros((len(at["source"]), len(parts), len(momenta), lattice.time_extent), complex)
    for number, source in enumerate(at["source"]):
        place = SourcePlace.parse(str(source))
        signs = {label: source_sign(each, place) for label, each in parsed.items()}
        solved = propagators.propagator[..., number, :]
        columns = solved.shape[-1] // (1 + list(signs.values()).count(None))
        blocks = iter(range(columns, solved.shape[-1], columns))
        first = {label: next(blocks) if sign is None else 0 for label, sign in signs.items()}
        quark = contiguous(solved[..., :columns])
        pairs: dict[tuple[str, str], np.ndarray] = {}
        for k, terms in enumerate(parts):
            for (sink, left), (label, right) in product(terms.items(), repeat=2):
                if (sink, label) not in pairs:
                    antiquark = contiguous(solved[..., first[label] : first[label] + columns])
                    thin, sign = links.links if links else None, signs[label]
                    correlator = staggered_correlator(
                        quark, antiquark, parsed[sink], thin, lattice, place, momenta
                    )
                    pairs[sink, label] = correlator if sign is None else sign * correlator
                measured[number, k] += left * right * pairs[sink, label]
    return StaggeredCorrelators(
        measured,
        np.asarray(propagators.residual),
        np.asarray(propagators.full_residual),
        np.asarray(propagators.iterations),
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
    return MesonAverage(*averages(given, at, momenta, jackknife_bin, Families(gammas, channels, CHANNELS)))


@stage(
    version="1",
    labels={"operator": FromParameter("operators"), **CHANNEL_LABELS},
    cost=average_cost,
)
def staggered_average(
    correlators: Chunks[StaggeredCorrelators],
    *,
    at: At,
    operators: Sequence[str],
    channels: Channels,
    momenta: Momenta,
    jackknife_bin: int = 1,
) -> StaggeredAverage:
    """Means over sources, then over configurations; errors by jackknife over bins of `jackknife_bin`.

    operators, momenta: those of the correlators. channels: names of
    `stages.lqcd.spectroscopy.staggered_operators.MULTIPLETS`, for mesons at rest, else
    `stages.lqcd.spectroscopy.little_group.channels_at` of these. An incomplete last bin is left out; errors
    of one bin are NaN. Raises InputError where no bin is left, and for names at a momentum.
    """
    given = ((where, each.correlator) for where, each in correlators)
    families = Families(operators, channels, MULTIPLETS, without_oscillation)
    return StaggeredAverage(*averages(given, at, momenta, jackknife_bin, families))


@dataclass(frozen=True)
class Families:
    """Channels that correlators of these labels are averaged to, and the members of each channel at rest.

    smoothed: of the channels' correlators before their effective masses.
    """

    labels: Sequence[str]
    channels: Channels
    members: Mapping[str, Sequence[str]]
    smoothed: Callable[[np.ndarray], np.ndarray] = lambda correlator: correlator


def averages(
    correlators: Iterable[tuple[At, np.ndarray]],
    at: At,
    momenta: Momenta,
    jackknife_bin: int,
    families: Families,
) -> Iterator[np.ndarray]:
    """Fields of `MesonAverage` of correlators ``[source, label, momentum, time]`` by coordinates, in order.

    Raises InputError.
    """
    means = means_of_configurations((where, np.real(each)) for where, each in correlators)
    binned = jackknife.bin_means(means, jackknife_bin)
    samples, mean = jackknife.jackknife_samples(binned), binned.mean(axis=0)
    channel, channel_samples = (channel_means(each, families, momenta) for each in (mean, samples))
    masses, mass_samples = (effective_mass(families.smoothed(each)) for each in (channel, channel_samples))
    at.record(configurations=len(binned) * jackknife_bin, configurations_given=len(means), bins=len(binned))
    yield from (mean, jackknife.jackknife_error(samples), samples)
    yield from (channel, jackknife.jackknife_error(channel_samples))
    yield from (masses, jackknife.jackknife_error(mass_samples))
    yield np.array(momenta)


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


def channel_means(correlator: np.ndarray, families: Families, momenta: Momenta) -> np.ndarray:
    """Means ``[..., channel, momentum, time]`` of correlators ``[..., label, momentum, time]``.

    NaN at momenta where there is no such channel. Raises InputError for the names of channels at rest with
    another momentum, and for rows of other momenta.
    """
    labels, channels = list(families.labels), families.channels
    check_at_rest(channels, momenta)
    if not isinstance(channels, Mapping):
        rows = [[labels.index(label) for label in families.members[name]] for name in channels]
        return np.stack([correlator[..., row, :, :].mean(axis=-3) for row in rows], axis=-3)
    means = np.full((*correlator.shape[:-3], len(channels), *correlator.shape[-2:]), np.nan)
    for number, by_momentum in enumerate(channels.values()):
        if len(by_momentum) != len(momenta):
            raise InputError(f"channels of {len(by_momentum)} momenta, but correlators of {len(momenta)}")
        for k, members in enumerate(by_momentum):
            if members:
                terms = [w * correlator[..., labels.index(label), k, :] for (label,), w in members]
                means[..., number, k, :] = np.sum(terms, axis=0)
    return means
