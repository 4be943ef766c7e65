"""Stages that turn loops into the disconnected correlator, per configuration and for the ensemble."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Chunks, Dims, stage
from stages.analysis import jackknife
from stages.analysis.disconnected import NOT_INCLUDED
from stages.analysis.disconnected import disconnected_correlator as pair_correlator
from stages.estimators.truncated import Piece, difference_pieces, estimate, truncated_pieces
from stages.lattice.geometry import DIRECTIONS, PARITIES
from stages.loops import CurrentLoops

FLAVOURS = ("light", "strange", "light - strange")
LABELS = {"flavour": FLAVOURS, "direction": DIRECTIONS, "parity": PARITIES}


class Correlator(NamedTuple):
    """Of one configuration, float64, lattice units; flavours as in `FLAVOURS`; errors over the noise."""

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


@stage(version="1", over=("config",), labels=LABELS)
def disconnected_correlator(
    light: Chunks[CurrentLoops],
    strange: Chunks[CurrentLoops],
    light_fine: Chunks[CurrentLoops] | None = None,
    strange_fine: Chunks[CurrentLoops] | None = None,
    *,
    at: At,
) -> Correlator:
    """C(t), loops and condensates of one configuration: light, strange, and light - strange.

    Given fine loops on some of the noise vectors, fine - sloppy corrects `light` and `strange` (truncated
    solver method). The difference is taken on the same noise. Charges, Z_V, taste factors and volumes are
    left out (`stages.analysis.disconnected.NOT_INCLUDED`). Raises InputError for fewer than two noise
    vectors of any kind, and for light and strange on different ones.
    """
    inputs = ((light, light_fine), (strange, strange_fine))
    current, condensate = (
        [pieces(sloppy, fine, name) for sloppy, fine in inputs] for name in ("current", "condensate")
    )
    for flavours in (current, condensate):
        flavours.append(difference_pieces(*flavours))
    loops, condensates = ([estimate(flavour) for flavour in flavours] for flavours in (current, condensate))
    at.record(not_included=NOT_INCLUDED, noise_vectors=[len(part.noise) for part in current[0]])
    return Correlator(
        np.stack([pair_correlator(flavour) for flavour in current]),
        np.stack([loop.mean for loop in loops]),
        np.stack([loop.error for loop in loops]),
        np.stack([density.mean for density in condensates]),
        np.stack([density.error for density in condensates]),
    )


def pieces(sloppy: Chunks[CurrentLoops], fine: Chunks[CurrentLoops] | None, name: str) -> tuple[Piece, ...]:
    """One of the arrays as the pieces of its estimate."""
    return truncated_pieces(piece(sloppy, name), None if fine is None else piece(fine, name))


def piece(chunks: Chunks[CurrentLoops], name: str) -> Piece:
    """One of the arrays of all chunks along their noise vectors."""
    parts = [(at["noise"], getattr(loops, name)) for at, loops in chunks]
    numbers = tuple(int(number) for noise, _ in parts for number in noise)
    return Piece(numbers, np.concatenate([values for _, values in parts]))


@stage(version="1", labels=LABELS)
def ensemble_average(correlators: Chunks[Correlator], *, at: At, jackknife_bin: int = 1) -> EnsembleAverage:
    """Means over configurations; errors, samples and covariance by jackknife over bins of `jackknife_bin`.

    An incomplete last bin is left out of the means too; the record says how many configurations were used
    and given. Raises InputError where fewer than two bins are left.
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


@stage(version="1", labels={"flavour": FLAVOURS})
def bootstrap_average(
    correlators: Chunks[Correlator], *, at: At, samples: int, seed: int, jackknife_bin: int = 1
) -> BootstrapAverage:
    """The mean correlator with errors from `samples` drawings, with replacement, of bins of configurations.

    An incomplete last bin is left out. Raises InputError where fewer than two bins are left.
    """
    binned = binned_by_name(correlators, jackknife_bin)["correlator"]
    drawn = jackknife.bootstrap_samples(binned, samples, seed)
    at.record(**_counts(correlators, len(binned), jackknife_bin))
    return BootstrapAverage(binned.mean(axis=0), jackknife.bootstrap_error(drawn), drawn)


def _counts(correlators: Chunks[Correlator], bins: int, width: int) -> dict[str, int]:
    """What an average was taken of: `configurations` are those of whole bins."""
    return {"configurations": bins * width, "configurations_given": len(correlators), "bins": bins}


def binned_by_name(correlators: Chunks[Correlator], width: int) -> dict[str, np.ndarray]:
    """Each array of the configurations, averaged in bins: ``[bin, ...]``."""
    results = [correlator for _, correlator in correlators]
    names = ("correlator", "loops", "condensate")
    return {name: jackknife.bin_means([getattr(result, name) for result in results], width) for name in names}
