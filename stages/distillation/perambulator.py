"""Stages that solve the Dirac equation in distillation's space, and say which columns their sources have.

Solutions live as long as their block.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline import At, Dims, Keyed, Resources, stage
from stages.base.errors import InputError
from stages.distillation.costs import first_sources_cost, solves_cost
from stages.distillation.laplace_eigenvectors import LaplaceBasis
from stages.lqcd.dirac.application import schur_application
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.distillation.columns import Columns, FullColumns, StochasticColumns
from stages.lqcd.distillation.distillation_sources import distillation_sources
from stages.lqcd.distillation.laph_dilution import LaphDilution
from stages.lqcd.distillation.projected import projected_solutions
from stages.lqcd.eigen.memory import available_bytes
from stages.lqcd.kernels.gamma import SPINS
from stages.lqcd.multigrid.hierarchy import Hierarchy
from stages.lqcd.solvers.even_odd import EvenOdd
from stages.lqcd.solvers.named import Solve
from stages.lqcd.spectroscopy.quark_sources import SourcePlace
from stages.mesons.sources import FirstSources
from stages.shared.solve_record import record_solves

PROJECTION_SHARE = 0.5
"""Of the memory that is free after a solve, what products of solutions may take."""


class Perambulator(NamedTuple):
    """tau(t', t) = V^dag(t') M^-1 V(t) of full distillation, DeGrand-Rossi basis, lattice units."""

    perambulator: Annotated[
        np.ndarray,
        Dims("source", "time", "spin_sink", "sink", "spin_source", "eigenvector", pieces={"source": 1}),
    ]
    """complex128; time of the sink, that of the lattice; sink, eigenvector: of the Laplacian, ascending."""
    source_time: Annotated[np.ndarray, Dims("source")]
    """int64."""
    residual: Annotated[np.ndarray, Dims("source", "spin_source", "eigenvector")]
    """|b - A x| / |b| of the even-odd system solved, recomputed in double precision."""
    full_residual: Annotated[np.ndarray, Dims("source", "spin_source", "eigenvector")]
    """|b - M x| / |b| of the whole lattice."""


class SinkProjection(NamedTuple):
    """V^dag(t) M^-1 times the diluted noise of stochastic LapH, as `Perambulator`."""

    projection: Annotated[
        np.ndarray, Dims("source", "time", "spin", "eigenvector", "column", pieces={"source": 1})
    ]
    """complex128; columns of a source: subsets of spins, then of eigenvectors (fastest)."""
    residual: Annotated[np.ndarray, Dims("source", "column")]
    full_residual: Annotated[np.ndarray, Dims("source", "column")]


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
    lattice, xp = operator.dslash.lattice, operator.xp
    return FirstSources(distillation_sources(basis.vectors, lattice, columns, first, xp))


@stage(
    version="1",
    over=("config", "source"),
    resources=Resources(device=1),
    keyed=Keyed(without=("max_iterations", "block"), later=("other_flavour",)),
    cost=solves_cost,
)
def perambulator(
    operator: WilsonOperator,
    basis: LaplaceBasis,
    columns: FullColumns,
    hierarchy: Hierarchy | None = None,
    *,
    at: At,
    solve: Solve,
    other_flavour: bool = False,
) -> Perambulator:
    """Perambulators tau of a chunk's source times: every eigenvector and spin is a right-hand side.

    solve, other_flavour: as for `stages.mesons.propagator.propagator`. Raises InputError, and
    NotConverged where a solve misses its tolerance.
    """
    operator = operator.other_flavour if other_flavour else operator
    result, residual, full = _solved(operator, basis, columns, hierarchy, solve, at)
    k = columns.eigenvectors
    shape = (len(columns.source_times), SPINS, k)
    tau = result.reshape(*result.shape[:3], *shape)
    return Perambulator(
        np.ascontiguousarray(np.moveaxis(tau, 3, 0)),
        np.array(columns.source_times),
        residual.reshape(shape),
        full.reshape(shape),
    )


@stage(
    version="1",
    over=("config", "source"),
    resources=Resources(device=1),
    keyed=Keyed(without=("max_iterations", "block")),
    cost=solves_cost,
)
def sink_projection(
    operator: WilsonOperator,
    basis: LaplaceBasis,
    columns: StochasticColumns,
    hierarchy: Hierarchy | None = None,
    *,
    at: At,
    solve: Solve,
) -> SinkProjection:
    """Solutions of a chunk's diluted noise, projected; parameters and errors as for `perambulator`."""
    result, residual, full = _solved(operator, basis, columns, hierarchy, solve, at)
    shape = (len(columns.sources), -1)
    projection = result.reshape(*result.shape[:3], *shape)
    return SinkProjection(
        np.ascontiguousarray(np.moveaxis(projection, 3, 0)), residual.reshape(shape), full.reshape(shape)
    )


def _solved(
    operator: WilsonOperator,
    basis: LaplaceBasis,
    columns: Columns,
    hierarchy: Hierarchy | None,
    solve: Solve,
    at: At,
) -> tuple[NDArray[np.complex128], NDArray[np.float64], NDArray[np.float64]]:
    """Projections ``[time, spin, eigenvector, column]``, and both residuals of each column."""
    method = EvenOdd(solve.of_regular(hierarchy), WilsonSchur)
    free = partial(free_bytes, operator.xp)
    result, statistics = projected_solutions(
        operator, basis.vectors, columns, method, solve.block, free, lambda *done: at.progress(*done)
    )
    record_solves(at, solve, statistics, application=partial(schur_application, operator))
    return result, np.concatenate(statistics.residual), np.concatenate(statistics.full_residual)


def free_bytes(xp: ModuleType) -> int:
    """Bytes that products of solutions may take now, where arrays of `xp` are."""
    return int(PROJECTION_SHARE * available_bytes(xp))


def _places(at: At, noise: bool) -> list[SourcePlace]:
    """The places that the chunk's coordinates name, all with the number of a noise vector or all without."""
    places = [SourcePlace.parse(str(label)) for label in at["source"]]
    for place in places:
        if place.point is not None or (place.noise is None) == noise:
            example = "'t8n0', of stochastic LapH" if noise else "'t8', of full distillation"
            raise InputError(f"a source is named like {example}, got {place.label!r}")
    return places
