"""The stage of generalised perambulators: currents between a source and a sink of distillation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline import At, Dims, Keyed, Resources, stage
from stages.distillation.costs import insertion_cost
from stages.distillation.laplace_eigenvectors import LaplaceBasis
from stages.distillation.perambulator import free_bytes
from stages.lqcd.dirac.application import schur_application
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.distillation.columns import FullColumns
from stages.lqcd.distillation.generalised_perambulators import Ends, generalised_perambulators
from stages.lqcd.distillation.insertions import Insertions
from stages.lqcd.kernels.gamma import SPINS
from stages.lqcd.multigrid.hierarchy import Hierarchy
from stages.lqcd.solvers.even_odd import EvenOdd
from stages.lqcd.solvers.named import Solve
from stages.lqcd.spectroscopy.gammas import NAMES
from stages.shared.solve_record import record_solves


@dataclass(frozen=True)
class Currents:
    """Currents between sources and sinks: Dirac matrices, momenta and displacements, and the sinks' times.

    separations: of sink and source, 1 to T - 1. momenta: in units of 2 pi / L. displacements: words of steps
    such as '+x'; '' is none.
    """

    separations: Sequence[int]
    momenta: Sequence[tuple[int, int, int]] = ((0, 0, 0),)
    displacements: Sequence[str] = ("",)


class CurrentInsertion(NamedTuple):
    """G(t) = V^dag(t_f) M^-1 [Gamma e^{ipx} D](t) M^-1 V(t_0), DeGrand-Rossi basis, lattice units.

    The sum over all t with Gamma = 1, p = 0 and no displacement is -d/dm of the perambulator.
    """

    insertion: Annotated[
        np.ndarray,
        Dims(
            "source",
            "separation",
            "time",
            "gamma",
            "momentum",
            "displacement",
            "spin_sink",
            "sink",
            "spin_source",
            "eigenvector",
            pieces={"source": 1, "separation": 1, "time": 1},
        ),
    ]
    """complex128; time of the current, that of the lattice; momenta and displacements in the order given."""
    source_time: Annotated[np.ndarray, Dims("source")]
    """int64, t_0."""
    sink_time: Annotated[np.ndarray, Dims("source", "separation")]
    """int64, t_f = t_0 + separation, around the lattice."""
    residual: Annotated[np.ndarray, Dims("source", "spin_source", "eigenvector")]
    """|b - A x| / |b| of the even-odd systems of the sources, recomputed in double precision."""
    full_residual: Annotated[np.ndarray, Dims("source", "spin_source", "eigenvector")]
    """|b - M x| / |b| of the whole lattice."""
    sink_residual: Annotated[np.ndarray, Dims("source", "separation", "spin_sink", "sink")]
    """Likewise of the solutions from the sinks."""
    sink_full_residual: Annotated[np.ndarray, Dims("source", "separation", "spin_sink", "sink")]


@stage(
    version="1",
    over=("config", "source"),
    resources=Resources(device=1),
    keyed=Keyed(without=("max_iterations", "block")),
    labels={"gamma": NAMES},
    cost=insertion_cost,
)
def current_insertion(
    operator: WilsonOperator,
    basis: LaplaceBasis,
    columns: FullColumns,
    hierarchy: Hierarchy | None = None,
    *,
    at: At,
    currents: Currents,
    solve: Solve,
) -> CurrentInsertion:
    """G of a chunk's source times, with all sixteen Dirac matrices on every slice of the lattice.

    currents: along the links of the operator (`stages.lqcd.distillation.generalised_perambulators`). solve:
    as for `stages.mesons.propagator.propagator`. A slice that several lines of a chunk begin or
    end on is solved for once. Raises InputError, and NotConverged where a solve misses its tolerance.
    """
    ends = Ends(columns, tuple(currents.separations), one_flavour=not operator.mu)
    insertions = Insertions(operator.lattice, tuple(currents.momenta), tuple(currents.displacements))
    method, sink_method = EvenOdd(solve.of_regular(hierarchy), WilsonSchur), None
    if operator.mu:
        other = hierarchy.twist_scaled(-1) if hierarchy else None
        sink_method = EvenOdd(solve.of_regular(other), WilsonSchur)
    free = partial(free_bytes, operator.xp)
    result, statistics = generalised_perambulators(
        operator,
        basis.vectors,
        ends,
        insertions,
        method,
        solve.block,
        free,
        lambda *done: at.progress(*done),
        sink_method,
    )
    record_solves(at, solve, statistics, application=partial(schur_application, operator))
    k = columns.eigenvectors
    spinors = result.reshape(*result.shape[:-2], SPINS, k, SPINS, k)
    residual, full_residual = (
        _by_line(blocks, ends) for blocks in (statistics.residual, statistics.full_residual)
    )
    return CurrentInsertion(
        spinors,
        np.array(columns.source_times),
        ends.sinks,
        residual[0],
        full_residual[0],
        residual[1],
        full_residual[1],
    )


def _by_line(blocks: Sequence[NDArray[np.float64]], ends: Ends) -> tuple[NDArray, NDArray]:
    """Parts of the blocks of `ends.times`: those of the sources, and those of the sinks of each line."""
    residuals = np.concatenate(blocks).reshape(len(ends.times), SPINS, -1)
    sources = ends.solved_at(ends.sources.source_times, sinks=False)
    sinks = ends.solved_at(ends.sinks.ravel().tolist(), sinks=True)
    return residuals[sources], residuals[sinks].reshape(*ends.sinks.shape, *residuals.shape[1:])
