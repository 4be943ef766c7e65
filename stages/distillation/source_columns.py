"""Transient stages that say which columns the sources of distillation have, and make the first of them."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline import At, Keyed, stage
from stages.base.errors import InputError
from stages.distillation.costs import first_sources_cost
from stages.distillation.laplace_eigenvectors import LaplaceBasis
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.distillation.columns import FullColumns, StochasticColumns
from stages.lqcd.distillation.distillation_sources import distillation_sources
from stages.lqcd.distillation.laph_dilution import LaphDilution
from stages.lqcd.distillation.projected import library
from stages.lqcd.spectroscopy.quark_sources import SourcePlace
from stages.mesons.sources import FirstSources


@stage(version="1", over=("config", "source"), transient=True)
def full_columns(*, at: At, time_extent: int, eigenvectors: int) -> FullColumns:
    """Every spin and eigenvector at the times that coordinates name: ``t8``. Raises InputError."""
    places = _places(at, noise=False)
    return FullColumns(tuple(place.time for place in places), time_extent, eigenvectors)


@stage(version="1", over=("config", "source"), transient=True)
def stochastic_columns(
    *, at: At, time_extent: int, eigenvectors: int, dilution: Mapping[str, str], kind: str, seed: int
) -> StochasticColumns:
    """Diluted noise at the subsets of times, of the noise vectors, that coordinates name: ``t8n0``.

    dilution: {time, spin, eigenvector}, each 'full', 'interlace-n' or 'none', which is meant where one is
    left out; with time 'full' a subset is a time slice. kind: 'z2', 'z4' or 'u1'. The noise is a function of
    seed, the configuration's label, the vector's number, time, spin and eigenvector. Raises InputError.
    """
    sources = tuple((place.time, place.noise or 0) for place in _places(at, noise=True))
    scheme, label = LaphDilution.parse(dilution), str(at.one("config"))
    return StochasticColumns(sources, scheme, time_extent, eigenvectors, label, seed, kind)


@stage(
    version="1",
    over=("config", "source"),
    transient=True,
    keyed=Keyed(without=("block",)),
    cost=first_sources_cost,
)
def first_sources(
    operator: WilsonOperator,
    basis: LaplaceBasis,
    columns: FullColumns | StochasticColumns,
    *,
    at: At,
    block: int,
) -> FirstSources:
    """The first `block` columns of a chunk, fewer if it has no more. Raises InputError."""
    first = range(min(block, len(columns)))
    lattice, xp = operator.dslash.lattice, library(operator)
    return FirstSources(distillation_sources(basis.vectors, lattice, columns, first, xp))


def _places(at: At, noise: bool) -> list[SourcePlace]:
    """The places that the chunk's coordinates name, all with the number of a noise vector or all without."""
    places = [SourcePlace.parse(str(label)) for label in at["source"]]
    for place in places:
        if place.point is not None or (place.noise is None) == noise:
            example = "'t8n0', of stochastic LapH" if noise else "'t8', of full distillation"
            raise InputError(f"a source is named like {example}, got {place.label!r}")
    return places
