"""One resampling for parts that were measured on different configurations.

The bins are those of all configurations together. A part's average in a sample is the ratio of its sum to its
count over the bins drawn, so that parts share what they have in common, and bins may hold different numbers
of configurations: an incomplete last bin is used with its weight.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stages.base.errors import InputError
from stages.lqcd.analysis.jackknife import (
    bootstrap_samples,
    few_degrees_of_freedom,
    jackknife_error,
    jackknife_samples,
)

LABEL = re.compile(r"(?P<stream>.*?)(?P<number>\d+)")

Array = NDArray[np.float64]


class Configuration(NamedTuple):
    """A place in a Markov chain; configurations of one ensemble sort by stream, then by number."""

    stream: str
    number: int


def configuration(label: str | int) -> Configuration:
    """Stream and number of a label that ends in a number: 'a.1020' is number 1020 of stream 'a'.

    Dots, dashes and underscores between the two are no part of the stream's name. Raises InputError for a
    label without a number.
    """
    match = LABEL.fullmatch(str(label))
    if not match:
        raise InputError(f"configuration {label!r}: a label ends in its number, like 'a.1020' or 1020")
    return Configuration(match["stream"].rstrip("._-"), int(match["number"]))


def configurations(labels: Sequence[str | int], part: str) -> list[Configuration]:
    """Those of a part's labels. Raises InputError for one that comes twice."""
    places = [configuration(label) for label in labels]
    if twice := [place for place, number in Counter(places).items() if number > 1]:
        raise InputError(f"{part}: configuration {twice[0].stream}{twice[0].number} is there twice")
    return places


@dataclass(frozen=True)
class Resampling:
    """How errors are made: jackknife over bins or, where `bootstrap` samples are asked for, bootstrap.

    bin: consecutive configurations of one stream in a bin; a bin never holds two streams.
    bootstrap: number of samples, 0 for the jackknife. seed: of the bootstrap.
    """

    bin: int = 1
    bootstrap: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, least in (("bin", self.bin, 1), ("bootstrap", self.bootstrap, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InputError(
                    f"{name} of a resampling must be a whole number of at least {least}, got {value!r}"
                )

    def error(self, samples: ArrayLike) -> Array:
        """The error over the first axis of `CommonSamples`, which are scaled for it."""
        array = np.asarray(samples)
        return array.std(axis=0, ddof=1) if self.bootstrap else jackknife_error(array)

    def bias(self, value: ArrayLike, samples: ArrayLike) -> Array:
        """The bias of a nonlinear number, to be subtracted: (n - 1) or 1 times mean(samples) - value."""
        array = np.asarray(samples)
        factor = 1 if self.bootstrap else len(array) - 1
        return factor * (array.mean(axis=0) - np.asarray(value))


class CommonSamples(NamedTuple):
    """Averages of parts and their common samples."""

    mean: dict[str, Array]
    """By part, ``[...]``."""
    samples: dict[str, Array]
    """By part, ``[sample, ...]``: their spread gives the part's error by `Resampling.error`."""
    bins: dict[str, int]
    """Bins that a part has data in."""
    notes: tuple[str, ...]
    """What a reader of the errors must know: few degrees of freedom, bins that are not full."""


def common_samples(
    parts: Mapping[str, tuple[ArrayLike, Sequence[str | int]]], resampling: Resampling | None = None
) -> CommonSamples:
    """Averages and samples of parts, each of data ``[config, ...]`` and as many labels.

    A part of n of the N bins in all gets deviations scaled by sqrt[(n - 1) N / (n (N - 1))] (jackknife) or its
    inverse (bootstrap), which makes the variance of each mean unbiased. Labels of all parts name one ensemble.
    Raises InputError for labels that do not fit the data or come twice, and for fewer than two bins.
    """
    if not parts:
        raise InputError("there is no part to resample")
    resampling = resampling or Resampling()
    arrays = {name: np.asarray(data, float) for name, (data, _) in parts.items()}
    places = {name: configurations(labels, name) for name, (_, labels) in parts.items()}
    for name, array in arrays.items():
        if not array.ndim or len(array) != len(places[name]) or not len(array):
            raise InputError(
                f"{name}: {len(places[name])} labels of configurations, but data of shape {list(array.shape)}"
            )
        if not np.isfinite(array).all():
            raise InputError(f"{name}: the data have numbers that are not finite")
    bins, notes = _bins(sorted(set().union(*places.values())), resampling.bin)
    number = max(bins.values()) + 1
    mean, samples, counts = {}, {}, {}
    for name, array in arrays.items():
        flat = array.reshape(len(array), -1)
        sums = np.zeros((number, flat.shape[1] + 1))
        np.add.at(sums, [bins[place] for place in places[name]], np.column_stack([flat, np.ones(len(flat))]))
        own = int(np.count_nonzero(sums[:, -1]))
        if own < 2:
            raise InputError(f"{name}: errors need at least two bins of configurations, got {own}")
        average = flat.mean(axis=0)
        ratio = _resampled(sums, resampling)
        scale = (own - 1) * number / (own * (number - 1))
        deviations = (ratio - average) * (scale**0.5 if not resampling.bootstrap else (own / (own - 1)) ** 0.5)
        mean[name] = average.reshape(array.shape[1:])
        samples[name] = (average + deviations).reshape(-1, *array.shape[1:])
        counts[name] = own
    few = [f"{name}: {note}" for name, own in counts.items() if (note := few_degrees_of_freedom(own))]
    return CommonSamples(mean, samples, counts, (*notes, *few))


def _resampled(sums: Array, resampling: Resampling) -> Array:
    """Ratios of the sums over bins to the counts, their last column, ``[sample, value]``."""
    if resampling.bootstrap:
        drawn = bootstrap_samples(sums, resampling.bootstrap, resampling.seed)
    else:
        drawn = jackknife_samples(sums)
    if not drawn[:, -1].all():
        raise InputError("a sample has no configuration of one of the parts: take the jackknife or more bins")
    return drawn[:, :-1] / drawn[:, -1:]


def _bins(places: Sequence[Configuration], width: int) -> tuple[dict[Configuration, int], list[str]]:
    """The bin of each configuration, consecutive ones of a stream together, and a note on what is not full."""
    bins: dict[Configuration, int] = {}
    notes, first = [], 0
    for stream in sorted({place.stream for place in places}):
        own = [place for place in places if place.stream == stream]
        bins |= {place: first + index // width for index, place in enumerate(own)}
        first += -(-len(own) // width)
        if left := len(own) % width:
            notes.append(f"stream '{stream}': the last bin has {left} of {width} configurations")
    return bins, notes
