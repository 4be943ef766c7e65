"""Doubts about configurations, from measurements on a few planes of their files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import TypeVar

from stages.base.errors import InputError
from stages.lqcd.gauge.fixing import gauge_residual, planes_plaquette
from stages.lqcd.lattice.formats.sample import first_planes, stated_plaquette
from stages.lqcd.lattice.geometry import Lattice
from workflows.parameter_file import Location, Problem
from workflows.shared.ensemble import Configurations

SPREAD = 0.3
"""Variance of a mean plaquette times the number of plaquettes, at most.

It is the slope of the plaquette in beta, exactly so of the Wilson action: 0.12 at beta 6, 0.3 at 5.6.
"""
APART = 6.0
"""Standard deviations between two ensembles, at least."""
SITES = 4096
"""Sites of a plaquette's estimate, in whole planes; smaller lattices are read whole."""
MOST_FILES = 100
"""Files whose plaquettes are looked at, spread evenly over the list."""
FIXED = 1e-2
"""Residual of Coulomb or Landau gauge below which a gauge is fixed, however loosely; about 3 in none."""
TWO_GROUPS = "plaquettes form two groups"
"""Beginning of the warning about files of several ensembles."""
File = TypeVar("File")
FILES: Location = ("ensemble", "files")


def ensemble_doubts(ensemble: Configurations, gauge: Location | None) -> Iterator[Problem]:
    """Doubts about files of several ensembles, and about fields in no fixed gauge.

    gauge: place of the value in the file that needs a fixed gauge, if one does. Files that cannot be read are
    skipped here; a run reports them.
    """
    if text := parted(*_plaquettes(dict(_some(list(ensemble.files.items()), MOST_FILES)), ensemble.lattice)):
        yield FILES, text
    if gauge:
        yield from ((gauge, text) for text in _unfixed(ensemble))


def parted(values: Mapping[str, float], counts: Mapping[str, int]) -> str:
    """A warning about mean plaquettes by label between which there is a gap, or nothing.

    counts: number of plaquettes that each is the mean of. Fluctuations of one ensemble leave no gap of
    `APART` standard deviations, whatever the number of configurations.
    """
    order = sorted(values, key=lambda label: values[label])
    gaps = []
    for number, (low, high) in enumerate(pairwise(order)):
        deviation = sqrt(SPREAD * (1 / counts[low] + 1 / counts[high]) / 2)
        gaps.append(((values[high] - values[low]) / (APART * deviation), number, deviation))
    if not gaps or max(gaps)[0] < 1:
        return ""
    _, number, deviation = max(gaps)
    parts = [order[: number + 1], order[number + 1 :]]
    small, large = sorted(parts, key=len)
    shown = f"{', '.join(small[:3])}{' and more' if len(small) > 3 else ''}"
    first, second = (f"{values[part[0]]:.4f} to {values[part[-1]]:.4f}" for part in parts)
    return (
        f"{TWO_GROUPS}, {first} and {second} ({shown}), but fluctuate by only about "
        f"{deviation:.1g} within one ensemble: are all {len(small) + len(large)} configurations of one? "
        "Results are averages over all"
    )


def _plaquettes(files: Mapping[str, Path], lattice: Lattice) -> tuple[dict[str, float], dict[str, int]]:
    """Mean plaquettes by label, as headers state them or of some planes, and of how many plaquettes."""
    values, counts = {}, {}
    x, y, z, t = lattice.extents
    whole = lattice.volume <= SITES
    planes, slices = (z, t) if whole else (min(z, -(-SITES // (x * y))), 1)
    for label, path in files.items():
        try:
            value, count = stated_plaquette(path), 6 * lattice.volume
            if value is None and (links := first_planes(path, planes, slices)) is not None:
                value, count = planes_plaquette(links, whole=whole), count if whole else planes * x * y
        except InputError:
            continue
        if value is not None and abs(value) <= 1:
            values[label], counts[label] = value, count
    return values, counts


def _unfixed(ensemble: Configurations) -> Iterator[str]:
    if not ensemble.files:
        yield "needs a fixed gauge, but heat-bath configurations are in none: results are gauge noise"
    for path in _some(list(ensemble.files.values()), 3):
        try:
            links = first_planes(path, 4, 2)
        except InputError:
            continue
        if links is not None and (residual := gauge_residual(links)) > FIXED:
            yield (
                f"needs a fixed gauge, but {path.name} is in none: the least residual of Coulomb and Landau "
                f"gauge is {residual:.2g}, and below {FIXED:g} in a fixed gauge; fix it, or take another kind"
            )
            return


def _some(paths: Sequence[File], most: int) -> list[File]:
    """At most so many, spread evenly over the list, with the first and the last."""
    if len(paths) <= most:
        return list(paths)
    return [paths[round(k * (len(paths) - 1) / (most - 1))] for k in range(most)]
