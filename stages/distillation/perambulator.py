"""Stages that solve the Dirac equation in distillation's space; solutions live as long as their block."""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline import At, Dims, Keyed, Resources, stage
from stages.distillation.costs import solves_cost
from stages.distillation.laplace_eigenvectors import LaplaceBasis
from stages.lqcd.dirac.application import schur_application
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.distillation.columns import Columns, FullColumns, StochasticColumns
from stages.lqcd.distillation.projected import library, projected_solutions
from stages.lqcd.eigen.memory import available_bytes
from stages.lqcd.kernels.gamma import SPINS
from stages.lqcd.multigrid.hierarchy import Hierarchy
from stages.lqcd.solvers.even_odd import EvenOdd
from stages.lqcd.solvers.named import Solve
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


@stage(
    version="1",
    over=("config", "source"),
    resources=Resources(device=1),
    keyed=Keyed(without=("max_iterations", "block")),
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
) -> Perambulator:
    """Perambulators tau of a chunk's source times: every eigenvector and spin is a right-hand side.

    solve: as for `stages.mesons.propagator.propagator`. Raises InputError, and
    NotConverged where a solve misses its tolerance.
    """
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
    free = partial(free_bytes, library(operator))
    result, statistics = projected_solutions(
        operator, basis.vectors, columns, method, solve.block, free, lambda *done: at.progress(*done)
    )
    record_solves(at, solve, statistics, application=partial(schur_application, operator))
    return result, np.concatenate(statistics.residual), np.concatenate(statistics.full_residual)


def free_bytes(xp: ModuleType) -> int:
    """Bytes that products of solutions may take now, where arrays of `xp` are."""
    return int(PROJECTION_SHARE * available_bytes(xp))
