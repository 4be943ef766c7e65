"""The average of all parts of the vector correlator with common samples: where a blinding factor enters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline import At, Chunks, Cost, Dims, FromParameter, Keyed, Node, stage
from stages.lqcd.analysis.blinding import Blinding
from stages.lqcd.analysis.common_resampling import Resampling, common_samples, stream_labels
from stages.lqcd.analysis.effective_mass import effective_mass, without_oscillation
from stages.lqcd.lattice.geometry import Lattice
from stages.shared.costs import RECORD, of_lattice


class HvpAverage(NamedTuple):
    """Averages of slice traces C(t), or of products JJ(t) of loops, float64, lattice units.

    Without charges, Z_V and 1/L^3. Where `blinded` is in the record, all but effective masses carry its
    factor.
    """

    correlator: Annotated[np.ndarray, Dims("part", "time")]
    """C(t), of loops JJ(t), lattice units; without charges, Z_V and 1/L^3."""
    correlator_error: Annotated[np.ndarray, Dims("part", "time")]
    correlator_samples: Annotated[np.ndarray, Dims("sample", "part", "time")]
    """Common samples of all parts: jackknife over bins, or bootstrap."""
    stochastic_error: Annotated[np.ndarray, Dims("part", "time")]
    """Noise's share of the error at fixed gauge fields; NaN where it is not known."""
    effective_mass: Annotated[np.ndarray, Dims("part", "time")]
    """Of [C(t - 1) + 2 C(t) + C(t + 1)] / 4."""
    effective_mass_error: Annotated[np.ndarray, Dims("part", "time")]


@dataclass(frozen=True)
class PartSource:
    """Where a part comes from: the input of that number, and the row of its array `correlator`.

    noise: the input that has its stochastic error, in the row of the array `errors`.
    """

    input: int
    row: int
    noise: int | None = None
    errors: str = "error"


@of_lattice
def hvp_average_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of averages with their samples."""
    options = node.parameters
    configurations = max(len(each.over["config"]) for each in node.inputs)
    samples = options["bootstrap"] or configurations // options["jackknife_bin"] + 1
    return Cost(stored=8 * len(options["parts"]) * lattice.time_extent * (5 + samples) + RECORD)


@stage(
    version="1",
    keyed=Keyed(without=("key_file",)),
    labels={"part": FromParameter("parts")},
    cost=hvp_average_cost,
)
def hvp_average(
    *correlators: Chunks[Any],
    at: At,
    parts: Sequence[str],
    sources: Sequence[PartSource],
    jackknife_bin: int = 1,
    bootstrap: int = 0,
    seed: int = 0,
    streams: str | None = None,
    blinded: str | None = None,
    key_file: str | None = None,
) -> HvpAverage:
    """Averages over the configurations that each part has, with one resampling for all.

    sources: of each part. streams: pattern of labels, as `stream_labels` takes it. blinded: digest of a
    blinding, whose key is in `key_file`; its factor is on all averages, samples and errors.
    Raises InputError for labels that do not fit, fewer than two bins, and a key that is lost or another one.
    """
    results = [{str(where.one("config")): result for where, result in each} for each in correlators]
    resampling = Resampling(jackknife_bin, bootstrap, seed)
    data = {}
    for part, source in zip(parts, sources, strict=True):
        own = {label: result.correlator[source.row] for label, result in results[source.input].items()}
        data[part] = (np.stack(list(own.values())), stream_labels(list(own), streams))
    samples, notes = common_samples(data, resampling)
    factor = 1.0
    if blinded:
        factor = float(Blinding.of_file(Path(str(key_file)), blinded).apply(1.0).values)
    noise = [
        factor * _stochastic(results, source, samples[part].shape[-1])
        for part, source in zip(parts, sources, strict=True)
    ]
    rows = factor * np.stack([samples[part] for part in parts], axis=1)
    mass = effective_mass(without_oscillation(rows))
    counts = {part: len(values) for part, (values, _) in data.items()}
    few: dict[str, list[str]] = {}
    for note in notes:
        part, _, text = note.partition(": ")
        few.setdefault(text, []).append(part)
    said = [text if len(of) == len(parts) else f"{', '.join(of)}: {text}" for text, of in few.items()]
    at.record(configurations=counts, notes=said, **({"blinded": blinded} if blinded else {}))
    errors = resampling.error(rows)
    return HvpAverage(rows[0], errors, rows[1:], np.stack(noise), mass[0], resampling.error(mass))


def _stochastic(results: Sequence[dict[str, Any]], source: PartSource, extent: int) -> NDArray[np.float64]:
    """Of the mean over configurations, whose noise is independent, ``[time]``."""
    if source.noise is None:
        return np.full(extent, np.nan)
    errors = [np.asarray(getattr(each, source.errors))[source.row] for each in results[source.noise].values()]
    return np.sqrt(np.sum(np.square(errors), axis=0)) / len(errors)
