"""Stages that make the sources of propagators, on the device that solves. They are transient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Dims, stage
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.smeared_links import SmearedLinks
from stages.lqcd.kernels.dispatch import Array, array_module_of
from stages.lqcd.kernels.fields import assign, side_by_side, zeros_like
from stages.lqcd.kernels.transfer import to_backend
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy import quark_sources as sources
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, gaussian_smeared, slice_sites
from stages.lqcd.spectroscopy.staggered_mesons import at_source, source_sign, staggered_source
from stages.lqcd.spectroscopy.staggered_operators import SpinTaste
from stages.mesons.costs import sources_cost


class Sources(NamedTuple):
    """Sources in the DeGrand-Rossi basis, complex128, component and column 3 * spin + colour."""

    fields: Annotated[np.ndarray, Dims("parity", "site", "component", "source", "column")]
    """12 columns, or 4, the spins, where noise does the colours (`stages.lqcd.spectroscopy.quark_sources`).
    """
    time: Annotated[np.ndarray, Dims("source")]
    """int64, the time slice of each."""


@dataclass(frozen=True, eq=False)
class FirstSources:
    """Sources in the DeGrand-Rossi basis: complex128 ``[parity, site, component, column]``.

    Component 3 * spin + colour; columns of a chunk of sources, which may be several.
    """

    fields: Array


class StaggeredSources(NamedTuple):
    """Sources b of the quark, and O'^dag b of each operator for which it is another field.

    In the order of the operators (`stages.lqcd.spectroscopy.staggered_mesons`), complex128.
    """

    fields: Annotated[np.ndarray, Dims("parity", "site", "component", "source", "column")]
    """Components are colours; columns those of b, then those of each operator with solves of its own."""


@stage(version="1", over=("config", "source"), transient=True, cost=sources_cost)
def point_sources(gauge: GaugeLinks, *, at: At) -> Sources:
    """Point sources where coordinates say: ``x0y0z0t8``. Raises InputError."""
    xp = array_module_of(at.backend)
    return _sources(at, lambda place: sources.point_source(gauge.lattice, place, xp))


@stage(version="1", over=("config", "source"), transient=True, cost=sources_cost)
def smeared_sources(
    gauge: GaugeLinks, smeared_links: SmearedLinks | None = None, *, at: At, width: float, steps: int
) -> Sources:
    """Point sources smeared on their time slice, with smeared links or the configuration's own.

    chi <- chi + width^2 / (4 steps) Laplacian chi, `steps` times (`stages.lqcd.spectroscopy.quark_sources`).
    Raises InputError.
    """
    xp, lattice = array_module_of(at.backend), gauge.lattice
    links = smeared_links.links if smeared_links else to_backend(gauge.links, at.backend)

    def smeared(place: SourcePlace) -> Array:
        point = sources.point_source(lattice, place, xp)
        return gaussian_smeared(point, links, lattice, place.time, width, steps)

    return _sources(at, smeared)


@stage(version="1", over=("config", "source"), transient=True, cost=sources_cost)
def wall_sources(gauge: GaugeLinks, *, at: At) -> Sources:
    """Ones on the time slices that coordinates name: ``t8``; links are not gauge-fixed. Raises InputError."""
    xp = array_module_of(at.backend)
    return _sources(at, lambda place: sources.wall_source(gauge.lattice, place, xp))


@stage(version="1", over=("config", "source"), transient=True, cost=sources_cost)
def z2_wall_sources(gauge: GaugeLinks, *, at: At, seed: int) -> Sources:
    """Z2 noise on a time slice, spin by spin: ``t8n0`` is vector 0 on slice 8. Raises InputError.

    The noise is a function of seed, the configuration's label, the vector's number and the site.
    """
    xp, label = array_module_of(at.backend), str(at.one("config"))
    return _sources(at, lambda place: sources.z2_wall_source(gauge.lattice, place, label, seed, xp))


@stage(version="1", over=("source", "config"), transient=True, cost=sources_cost)
def file_sources(gauge: GaugeLinks, *, at: At, path: Path) -> Sources:
    """A user's source, the same for every configuration, from a NumPy file (`sources.read_source`).

    Its time is the first slice on which it is not zero. Raises InputError.
    """
    lattice = gauge.lattice
    field = sources.read_source(path, lattice)
    time = sources.first_time(field, lattice)
    return Sources(to_backend(field[..., None, :], at.backend), np.array([time]))


@stage(version="1", over=("config", "source"), transient=True)
def staggered_sources(
    gauge: GaugeLinks,
    links: SmearedLinks | None = None,
    *,
    at: At,
    operators: Sequence[str],
    seed: int | None = None,
) -> StaggeredSources:
    """Points, corner walls or noise on time slices, as coordinates say, and operators applied to them.

    ``x0y0z0t8`` is a point, ``t8`` a corner wall, ``t8n0`` Z2 noise with `seed`. links: of displacements;
    needed for operators that have links. operators: such as 'GX-G1'. Raises InputError.
    """
    lattice, label = gauge.lattice, str(at.one("config"))
    parsed, xp = [SpinTaste.parse(each) for each in operators], array_module_of(at.backend)
    fields = []
    for place in map(SourcePlace.parse, map(str, at["source"])):
        source = staggered_source(lattice, place, label, seed, xp)
        others = [
            at_source(each, source, links.links if links else None, lattice, place.time)
            for each in parsed
            if source_sign(each, place) is None
        ]
        fields.append(_on_lattice([source, *others], lattice, place.time))
    return StaggeredSources(side_by_side(fields))


def _sources(at: At, make: Callable[[SourcePlace], Array]) -> Sources:
    """The sources at the places that the chunk's coordinates name."""
    places = [SourcePlace.parse(str(label)) for label in at["source"]]
    fields = side_by_side([make(place) for place in places])
    return Sources(fields, np.array([place.time for place in places]))


def _on_lattice(slices: Sequence[Array], lattice: Lattice, time: int) -> Array:
    """Fields ``[1, parity, site of the slice, 3, column]`` side by side, ``[parity, site, 3, column]``."""
    first, columns = slices[0], slices[0].shape[-1]
    fields = zeros_like(first, (2, lattice.half_volume, first.shape[3], columns * len(slices)))
    for number, each in enumerate(slices):
        own = slice(number * columns, (number + 1) * columns)
        assign(fields[:, slice_sites(lattice, time), :, own], each[0])
    return fields
