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
from stages.lqcd.analysis.common_resampling import Resampling, common_samples
from stages.lqcd.analysis.effective_mass import effective_mass, without_oscillation
from stages.lqcd.lattice.geometry import Lattice
from stages.shared.costs import PROCESS, RECORD, of_lattice


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
    noise_covariance: Annotated[np.ndarray, Dims("part", "slice", "other_part", "other_slice")]
    """Of folded averages at fixed gauge fields, with the blinding's factor squared; NaN where not known."""
    effective_mass: Annotated[np.ndarray, Dims("part", "time")]
    """Of [C(t - 1) + 2 C(t) + C(t + 1)] / 4."""
    effective_mass_error: Annotated[np.ndarray, Dims("part", "time")]


@dataclass(frozen=True)
class PartSource:
    """Where a part comes from: the input of that number, and the row of its array `correlator`.

    noise: the input that has the deviations of its noise, in the row `noise_row`.
    """

    input: int
    row: int
    noise: int | None = None
    noise_row: int = 0


@of_lattice
def hvp_average_cost(node: Node, lattice: Lattice) -> Cost:
    """Cost of averages with their samples."""
    options, time = node.parameters, lattice.time_extent
    configurations = len({label for each in node.inputs for label in each.over["config"]})
    samples = options["bootstrap"] or configurations // options["jackknife_bin"] + 1
    parts = len(options["parts"])
    stored = 8 * (parts * time * (5 + samples) + (parts * (time // 2 + 1)) ** 2)
    read = sum(len(each.over["config"]) * each.cost.stored for each in node.inputs)
    return Cost(PROCESS + read + 3 * stored, stored=stored + RECORD)


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

    sources: of each part. streams: pattern of labels, as `label_expression` takes it. blinded: digest of a
    blinding, whose key is in `key_file`; its factor is on all averages, samples and errors.
    Raises InputError for labels that do not fit, fewer than two bins, and a key that is lost or another one.
    """
    results = [{str(where.one("config")): result for where, result in each} for each in correlators]
    resampling = Resampling(jackknife_bin, bootstrap, seed)
    data = {}
    for part, source in zip(parts, sources, strict=True):
        own = {label: result.correlator[source.row] for label, result in results[source.input].items()}
        data[part] = (np.stack(list(own.values())), list(own))
    samples, notes = common_samples(data, resampling, streams)
    factor = Blinding.of_file(Path(str(key_file)), blinded).factor if blinded else 1.0
    rows = factor * np.stack([samples[part] for part in parts], axis=1)
    mass = effective_mass(without_oscillation(rows))
    counts = {part: len(values) for part, (values, _) in data.items()}
    few: dict[str, list[str]] = {}
    for note in notes:
        part, _, text = note.partition(": ")
        few.setdefault(text, []).append(part)
    said = [text if len(of) == len(parts) else f"{', '.join(of)}: {text}" for text, of in few.items()]
    labels = sorted({label for _, own in data.values() for label in own})
    at.record(configurations=counts, labels=labels, notes=said, **({"blinded": blinded} if blinded else {}))
    errors = resampling.error(rows)
    noise = factor**2 * _noise_covariance(results, sources, rows.shape[-1] // 2 + 1)
    return HvpAverage(rows[0], errors, rows[1:], noise, mass[0], resampling.error(mass))


def _noise_covariance(
    results: Sequence[dict[str, Any]], sources: Sequence[PartSource], slices: int
) -> NDArray[np.float64]:
    """Of means over configurations, whose noise is independent, ``[part, slice, part, slice]``."""
    covariance = np.zeros((len(sources), slices, len(sources), slices))
    for number in {source.noise for source in sources}:
        parts = [k for k, source in enumerate(sources) if source.noise == number]
        if number is None:
            covariance[parts] = covariance[:, :, parts] = np.nan
            continue
        rows = [sources[k].noise_row for k in parts]
        flat = [each.deviation[:, rows].reshape(len(each.deviation), -1) for each in results[number].values()]
        products = sum(each.T @ each for each in flat) / len(flat) ** 2
        of_parts = np.ix_(parts, range(slices), parts, range(slices))
        covariance[of_parts] = products.reshape(len(parts), slices, len(parts), slices)
    return covariance
