"""Stages that turn loops into the disconnected correlator, per configuration and for the ensemble."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Chunks, Dims, stage
from stages.base.errors import InputError
from stages.loops.costs import average_cost, correlator_cost
from stages.loops.current_loops import FLAVOUR_LABELS as LABELS
from stages.loops.current_loops import FLAVOURS, FlavourLoops, probes
from stages.lqcd.analysis import jackknife
from stages.lqcd.analysis.disconnected import NOT_INCLUDED
from stages.lqcd.analysis.disconnected import disconnected_correlator as pair_correlator
from stages.lqcd.estimators.truncated import Piece, estimate, truncated_pieces


class Correlator(NamedTuple):
    """C(t) of one configuration, float64, lattice units; flavours as in `FLAVOURS`; errors over the noise."""

    correlator: Annotated[np.ndarray, Dims("flavour", "time")]
    """C(t) = (1/3) sum_i (1/T) sum_t0 J_i(t0 + t) J_i(t0), from pairs of different noise vectors."""
    loops: Annotated[np.ndarray, Dims("flavour", "direction", "time")]
    """J_mu(t), mean over noise vectors."""
    loops_error: Annotated[np.ndarray, Dims("flavour", "direction", "time")]
    condensate: Annotated[np.ndarray, Dims("flavour", "parity")]
    """psibar-psi = (2/V) tr M^-1 over the sites of a parity."""
    condensate_error: Annotated[np.ndarray, Dims("flavour", "parity")]


class EnsembleAverage(NamedTuple):
    """Averages over configurations with jackknife errors, float64, lattice units; flavours: `FLAVOURS`."""

    correlator: Annotated[np.ndarray, Dims("flavour", "time")]
    correlator_error: Annotated[np.ndarray, Dims("flavour", "time")]
    correlator_samples: Annotated[np.ndarray, Dims("sample", "flavour", "time")]
    """The correlator without one bin of configurations each."""
    correlator_covariance: Annotated[np.ndarray, Dims("flavour", "time", "other_time")]
    loops: Annotated[np.ndarray, Dims("flavour", "direction", "time")]
    loops_error: Annotated[np.ndarray, Dims("flavour", "direction", "time")]
    condensate: Annotated[np.ndarray, Dims("flavour", "parity")]
    condensate_error: Annotated[np.ndarray, Dims("flavour", "parity")]


class BootstrapAverage(NamedTuple):
    """The correlator with bootstrap errors."""

    correlator: Annotated[np.ndarray, Dims("flavour", "time")]
    correlator_error: Annotated[np.ndarray, Dims("flavour", "time")]
    correlator_samples: Annotated[np.ndarray, Dims("sample", "flavour", "time")]


@stage(version="2", over=("config",), labels=LABELS, cost=correlator_cost)
def disconnected_correlator(
    loops: Chunks[FlavourLoops], fine: Chunks[FlavourLoops] | None = None, *, at: At
) -> Correlator:
    """C(t), loops and condensates of one configuration: light, strange, and light - strange.

    Given fine loops on some of the noise vectors, fine - sloppy corrects `loops` (truncated solver method).
    Charges, Z_V, taste factors and volumes are left out (`stages.lqcd.analysis.disconnected.NOT_INCLUDED`).
    Raises InputError for fewer than two noise vectors of either kind, and for different probes.
    """
    current, condensate = (flavour_pieces(loops, fine, name) for name in ("current", "condensate"))
    means, condensates = ([estimate(flavour) for flavour in flavours] for flavours in (current, condensate))
    at.record(not_included=NOT_INCLUDED, noise_vectors=[len(part.noise) for part in current[0]])
    return Correlator(
        np.stack([pair_correlator(flavour) for flavour in current]),
        np.stack([loop.mean for loop in means]),
        np.stack([loop.error for loop in means]),
        np.stack([density.mean for density in condensates]),
        np.stack([density.error for density in condensates]),
    )


def flavour_pieces(
    loops: Chunks[FlavourLoops], fine: Chunks[FlavourLoops] | None, name: str
) -> list[tuple[Piece, ...]]:
    """One of the arrays as the pieces of its estimate, flavour by flavour."""
    numbers, values, probes = vector_means(loops, name)
    if fine is None:
        return [truncated_pieces(Piece(numbers, flavour), None) for flavour in np.moveaxis(values, 1, 0)]
    fine_numbers, fine_values, fine_probes = vector_means(fine, name)
    if fine_probes != probes:
        raise InputError(
            f"fine solves correct sloppy ones on the same probes, got {len(fine_probes)} fine and "
            f"{len(probes)} sloppy probes: give both the same"
        )
    pairs = zip(np.moveaxis(values, 1, 0), np.moveaxis(fine_values, 1, 0), strict=True)
    return [truncated_pieces(Piece(numbers, s), Piece(fine_numbers, f)) for s, f in pairs]


def vector_means(
    chunks: Chunks[FlavourLoops], name: str
) -> tuple[tuple[int, ...], np.ndarray, frozenset[int]]:
    """Numbers of the noise vectors, an array's mean over probes ``[noise, flavour, ...]``, and the probes."""
    vectors: dict[int, dict[int, np.ndarray]] = {}
    for at, loops in chunks:
        for number, of_vector in zip(at["noise"], getattr(loops, name), strict=True):
            vectors.setdefault(int(number), {}).update(zip(probes(at), of_vector, strict=True))
    of_all = {frozenset(of_vector) for of_vector in vectors.values()}
    if len(of_all) > 1:
        raise InputError("every noise vector needs the same probes, or their means would not be alike")
    means = [np.mean(list(of_vector.values()), axis=0) for of_vector in vectors.values()]
    return tuple(vectors), np.stack(means), of_all.pop()


@stage(version="1", labels=LABELS, cost=average_cost)
def ensemble_average(correlators: Chunks[Correlator], *, at: At, jackknife_bin: int = 1) -> EnsembleAverage:
    """Means over configurations; errors, samples and covariance by jackknife over bins of `jackknife_bin`.

    An incomplete last bin is left out of the means too; the record says how many configurations were used
    and given. One bin has no errors, samples and covariance: they are NaN. Raises InputError where no bin is
    left.
    """
    binned = binned_by_name(correlators, jackknife_bin)
    samples = {name: jackknife.jackknife_samples(values) for name, values in binned.items()}
    mean = {name: values.mean(axis=0) for name, values in binned.items()}
    error = {name: jackknife.jackknife_error(values) for name, values in samples.items()}
    at.record(not_included=NOT_INCLUDED, **_counts(correlators, len(binned["correlator"]), jackknife_bin))
    return EnsembleAverage(
        mean["correlator"],
        error["correlator"],
        samples["correlator"],
        jackknife.jackknife_covariance(samples["correlator"]),
        mean["loops"],
        error["loops"],
        mean["condensate"],
        error["condensate"],
    )


@stage(version="2", labels={"flavour": FLAVOURS}, cost=average_cost)
def bootstrap_average(
    correlators: Chunks[Correlator], *, at: At, samples: int, seed: int, jackknife_bin: int = 1
) -> BootstrapAverage:
    """The mean correlator with errors from `samples` drawings, with replacement, of bins of configurations.

    An incomplete last bin is left out; errors of one bin are NaN. Raises InputError where no bin is left.
    """
    binned = binned_by_name(correlators, jackknife_bin)["correlator"]
    drawn = jackknife.bootstrap_samples(binned, samples, seed)
    at.record(**_counts(correlators, len(binned), jackknife_bin))
    return BootstrapAverage(binned.mean(axis=0), jackknife.bootstrap_error(drawn, len(binned)), drawn)


def _counts(correlators: Chunks[Correlator], bins: int, width: int) -> dict[str, int]:
    """Numbers of what an average was taken of: `configurations` are those of whole bins."""
    return {"configurations": bins * width, "configurations_given": len(correlators), "bins": bins}


def binned_by_name(correlators: Chunks[Correlator], width: int) -> dict[str, np.ndarray]:
    """Each array of the configurations, averaged in bins: ``[bin, ...]``."""
    results = [correlator for _, correlator in correlators]
    names = ("correlator", "loops", "condensate")
    return {name: jackknife.bin_means([getattr(result, name) for result in results], width) for name in names}
