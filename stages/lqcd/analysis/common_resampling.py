"""Errors of parts that were measured on different configurations: one resampling, and the Gamma method.

The bins are those of all configurations together. A part's average in a sample is its sum over the bins drawn
divided by its count, so that parts share what they have in common, and bins that are not full keep their
weight.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stages.base.errors import InputError, check_whole
from stages.lqcd.analysis.jackknife import (
    bootstrap_samples,
    few_degrees_of_freedom,
    jackknife_error,
    jackknife_samples,
)

Array = NDArray[np.float64]
LEAST_CHAIN = 5
"""Configurations of a stream that pyerrors takes."""
Labels = Sequence[str | int]
"""A stream and a number each, like 'a.1020' or 1020."""


def label_expression(pattern: str | None) -> re.Pattern[str]:
    """Where stream and number are in labels, by a pattern like 'l4864{stream}.{number}.ildg'.

    {stream} and {number} stand for what differs, * for what does not matter; {stream} may be left out. None:
    a label ends in its number; dots, dashes, underscores between stream and number belong to neither.
    Raises InputError for a pattern without {number}.
    """
    if pattern is None:
        return re.compile(r"(?P<stream>.*?)[._-]*(?P<number>\d+)")
    if pattern.count("{number}") != 1 or pattern.count("{stream}") > 1:
        raise InputError(f"{pattern!r} is no pattern of labels: it has {{number}} once, {{stream}} at most")
    parts = {"{number}": r"(?P<number>\d+)", "{stream}": "(?P<stream>.*?)", "*": ".*?"}
    tokens = re.split(r"(\{number\}|\{stream\}|\*)", pattern)
    return re.compile("".join(parts.get(token, re.escape(token)) for token in tokens))


def configurations(labels: Labels, part: str, pattern: str | None = None) -> list[tuple[str, int]]:
    """Stream and number of each label of a part, by `label_expression`.

    Raises InputError for a label that has none, and for two of one configuration.
    """
    expression, places = label_expression(pattern), dict[tuple[str, int], str | int]()
    for label in labels:
        if not (match := expression.fullmatch(str(label))):
            if pattern:
                raise InputError(f"the pattern {pattern!r} does not match the label {label!r}")
            raise InputError(f"{part}: the label {label!r} does not end in a number, as 'a.1020' does")
        place = (match.groupdict().get("stream") or "").rstrip("._-"), int(match["number"])
        if place in places:
            if pattern:
                alike = f"{places[place]!r} and {label!r} alike: '{place[0]}.{place[1]}'"
                raise InputError(f"the pattern {pattern!r} makes {alike}")
            raise InputError(f"{part}: configuration {place[0]}{place[1]} is there twice")
        places[place] = label
    return list(places)


@dataclass(frozen=True)
class Resampling:
    """Jackknife over bins or, with `bootstrap` samples, the bootstrap from a `seed`.

    bin: consecutive configurations of one stream in a bin; no bin holds two streams.
    """

    bin: int = 1
    bootstrap: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("bin", self.bin, 1)
        check_whole("bootstrap", self.bootstrap, 0)
        check_whole("seed", self.seed, 0)
        if self.bootstrap == 1:
            raise InputError("one bootstrap sample has no spread: ask for more, or for 0 and the jackknife")

    def error(self, rows: ArrayLike) -> Array:
        """The error of rows of `common_samples`, or of a function of them; the average's row is left out."""
        samples = np.asarray(rows)[1:]
        return samples.std(axis=0, ddof=1) if self.bootstrap else jackknife_error(samples)

    def bias(self, rows: ArrayLike) -> Array:
        """Bias of a nonlinear number, to be subtracted: samples' mean - average, times n - 1 (jackknife)."""
        average, samples = np.split(np.asarray(rows), [1])
        return (1 if self.bootstrap else len(samples) - 1) * (samples.mean(axis=0) - average[0])


def common_samples(
    parts: Mapping[str, tuple[ArrayLike, Labels]],
    resampling: Resampling | None = None,
    pattern: str | None = None,
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Average and common samples, ``[1 + sample, ...]``, by part, and notes for readers of the errors.

    parts: data ``[config, ...]`` and as many labels, of one ensemble, which `pattern` takes apart as in
    `label_expression`. The deviations of a part with data in n
    of N bins are scaled by sqrt[(n - 1) N / (n (N - 1))] (jackknife) or sqrt[n / (n - 1)] (bootstrap), which
    makes the variance of each average unbiased.
    Raises InputError for labels that do not fit the data, numbers that are not finite, fewer than two bins.
    """
    if not parts:
        raise InputError("there is no part to resample")
    resampling = resampling or Resampling()
    places = {name: configurations(labels, name, pattern) for name, (_, labels) in parts.items()}
    bins, notes = _bins(sorted(set().union(*places.values())), resampling.bin)
    number = max(bins.values()) + 1
    result = {}
    for name, (data, _) in parts.items():
        array = _real(name, data, len(places[name]))
        flat = array.reshape(len(array), -1)
        sums, of_bins = np.zeros((number, flat.shape[1] + 1)), [bins[place] for place in places[name]]
        np.add.at(sums[:, :-1], of_bins, flat)
        np.add.at(sums[:, -1], of_bins, 1)
        own = int(np.count_nonzero(sums[:, -1]))
        if own < 2:
            raise InputError(f"{name}: errors need at least two bins of configurations, got {own}")
        if resampling.bootstrap:
            drawn = bootstrap_samples(sums, resampling.bootstrap, resampling.seed)
            scale = own / (own - 1)
        else:
            drawn = jackknife_samples(sums)
            scale = (own - 1) * number / (own * (number - 1))
        if not drawn[:, -1].all():
            raise InputError(f"{name}: a sample has none of its {own} bins: take the jackknife or more bins")
        average = flat.mean(axis=0)
        rows = np.vstack([average, average + scale**0.5 * (drawn[:, :-1] / drawn[:, -1:] - average)])
        result[name] = rows.reshape(-1, *array.shape[1:])
        if few := few_degrees_of_freedom(own):
            notes.append(f"{name}: {few}")
    return result, tuple(notes)


def _real(name: str, data: ArrayLike, labels: int) -> Array:
    array = np.asarray(data)
    if array.dtype.kind not in "fiu" or not array.ndim or len(array) != labels or not labels:
        got = f"got {array.dtype} of shape {list(array.shape)}"
        raise InputError(f"{name}: needs real numbers for each of {labels} labelled configurations, {got}")
    if wrong := int(np.count_nonzero(~np.isfinite(array))):
        raise InputError(f"{name}: {wrong} of {array.size} numbers are not finite")
    return array.astype(float)


def _bins(places: Sequence[tuple[str, int]], width: int) -> tuple[dict[tuple[str, int], int], list[str]]:
    """The bin of each configuration, consecutive ones of a stream together; a note on bins not full."""
    bins: dict[tuple[str, int], int] = {}
    notes, first = [], 0
    for stream in sorted({stream for stream, _ in places}):
        own = [place for place in places if place[0] == stream]
        bins |= {place: first + index // width for index, place in enumerate(own)}
        first += -(-len(own) // width)
        if left := len(own) % width:
            notes.append(f"stream '{stream}': the last bin has {left} of {width} configurations")
    return bins, notes


class GammaError(NamedTuple):
    """A mean, its error, the error's error, and the integrated autocorrelation time with its error.

    tau_int is in units of the least spacing of configurations, 1/2 without correlation.
    """

    value: float
    error: float
    error_of_error: float
    tau_int: float
    tau_int_error: float


def gamma_error(
    parts: Mapping[str, tuple[ArrayLike, Labels]], window: float = 2.0, pattern: str | None = None
) -> GammaError:
    """Of the sum of the means of parts, numbers ``[config]`` with labels, by `pyerrors`, if installed.

    Streams are replica of one chain; configurations may be missing, and parts may have different ones.
    window: S of the automatic window (arXiv:hep-lat/0306017).
    Raises InputError without `pyerrors`, for labels that do not fit, and a stream of fewer than 5.
    """
    try:
        pyerrors: Any = import_module("pyerrors")
    except ImportError as error:
        remedy = "pip install pyerrors, or take the jackknife with bins"
        raise InputError(f"the Gamma method needs pyerrors: {remedy}") from error
    total: Any = 0.0
    for name, (data, labels) in parts.items():
        places = configurations(labels, name, pattern)
        values = _real(name, data, len(places))
        if values.ndim > 1:
            raise InputError(f"{name}: needs one number per configuration, got shape {list(values.shape)}")
        chains: dict[str, dict[int, float]] = {}
        for (stream, number), value in sorted(zip(places, values, strict=True)):
            chains.setdefault(stream, {})[number] = value
        if short := [stream for stream, chain in chains.items() if len(chain) < LEAST_CHAIN]:
            got = f"got {len(chains[short[0]])} in '{short[0]}'"
            raise InputError(f"{name}: needs at least {LEAST_CHAIN} configurations of each stream, {got}")
        total = total + pyerrors.Obs(
            [list(chain.values()) for chain in chains.values()],
            [f"ensemble|{stream}" for stream in chains],
            idl=[list(chain) for chain in chains.values()],
        )
    total.gamma_method(S=window)
    tau, tau_error = total.e_tauint["ensemble"], total.e_dtauint["ensemble"]
    return GammaError(*map(float, (total.value, total.dvalue, total.ddvalue, tau, tau_error)))
