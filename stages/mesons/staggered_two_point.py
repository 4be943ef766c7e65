"""Stages of staggered meson two-point functions: of each source, and averaged over the ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Chunks, Dims, FromParameter, Resources, stage
from stages.ensemble.smeared_links import SmearedLinks
from stages.lqcd.analysis import jackknife
from stages.lqcd.analysis.effective_mass import effective_mass, without_oscillation
from stages.lqcd.kernels.fields import contiguous
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.quark_sources import SourcePlace
from stages.lqcd.spectroscopy.staggered_mesons import source_sign, staggered_correlator
from stages.lqcd.spectroscopy.staggered_operators import MULTIPLETS, SpinTaste, terms_of
from stages.mesons.staggered_costs import staggered_average_cost, staggered_two_point_cost
from stages.mesons.staggered_propagator import StaggeredPropagators
from stages.mesons.two_point import MOMENTA, Channels, Momenta, channel_means, means_of_configurations


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


@stage(
    version="1",
    labels={
        "operator": FromParameter("operators"),
        "channel": FromParameter("channels"),
        "direction": ("x", "y", "z"),
    },
    cost=staggered_average_cost,
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
    means = means_of_configurations((where, np.real(each.correlator)) for where, each in correlators)
    binned = jackknife.bin_means(means, jackknife_bin)
    samples, mean = jackknife.jackknife_samples(binned), binned.mean(axis=0)
    channel, channel_samples = (
        channel_means(each, operators, channels, MULTIPLETS, momenta) for each in (mean, samples)
    )
    masses, mass_samples = (effective_mass(without_oscillation(each)) for each in (channel, channel_samples))
    at.record(configurations=len(binned) * jackknife_bin, configurations_given=len(means), bins=len(binned))
    return StaggeredAverage(
        mean,
        jackknife.jackknife_error(samples),
        samples,
        channel,
        jackknife.jackknife_error(channel_samples),
        masses,
        jackknife.jackknife_error(mass_samples),
        np.array(momenta),
    )
