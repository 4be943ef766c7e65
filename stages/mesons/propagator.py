"""Stages of quark propagators, of Wilson-clover and staggered quarks: solved for in blocks.

They are handed on in memory, or kept in the store on request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline import At, Dims, Keyed, Resources, stage
from stages.lqcd.dirac.application import schur_application, staggered_application
from stages.lqcd.dirac.full_lattice import StaggeredOperator, StaggeredSchur
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.multigrid.hierarchy import Hierarchy
from stages.lqcd.solvers.deflation import DeflatedSolver, StaggeredSpace
from stages.lqcd.solvers.even_odd import ByParity, EvenOdd, propagate
from stages.lqcd.solvers.named import Solve
from stages.lqcd.solvers.solution import Solver
from stages.mesons.costs import kept_cost, propagator_cost, staggered_propagator_cost
from stages.mesons.sources import Sources, StaggeredSources
from stages.shared.second_path import check_fields, check_solutions, other_kernels
from stages.shared.solve_record import Counted, record_solves

Operator = TypeVar("Operator", WilsonOperator, StaggeredDslash)

AMPLIFIED = 20.0
"""Times that a residual of M x = b may be larger than that of the Schur complement: |A|, with room."""
LARGEST = 16.0
"""Bound of |D| of staggered quarks."""


class Propagator(NamedTuple):
    """S = M^-1 times sources, DeGrand-Rossi basis, lattice units; M as `stages.lqcd.dirac.wilson` defines it.

    The time is that of the lattice. A column that crosses an antiperiodic boundary has its sign there.
    """

    propagator: Annotated[
        np.ndarray,
        Dims("parity", "site", "component", "source", "column", pieces={"source": 1, "column": 4}),
    ]
    """complex128; components and columns as those of the sources."""
    residual: Annotated[np.ndarray, Dims("source", "column")]
    """|b - A x| / |b| of the even-odd system solved, recomputed in double precision."""
    full_residual: Annotated[np.ndarray, Dims("source", "column")]
    """|b - M x| / |b| of the whole lattice."""
    iterations: Annotated[np.ndarray, Dims("source", "column")]
    """int64, of the block that a column was in."""
    time: Annotated[np.ndarray, Dims("source")]
    """int64, the time slice of each source."""


class StaggeredPropagators(NamedTuple):
    """M^-1 times sources, M = 2 m + D in MILC's normalisation; lattice units, the lattice's own time."""

    propagator: Annotated[np.ndarray, Dims("parity", "site", "component", "source", "column")]
    """complex128; components and columns as those of the sources."""
    residual: Annotated[np.ndarray, Dims("source", "column")]
    """|b - A x| / |b| of the even sites' system, recomputed in double precision."""
    full_residual: Annotated[np.ndarray, Dims("source", "column")]
    """|b - M x| / |b| of the whole lattice."""
    iterations: Annotated[np.ndarray, Dims("source", "column")]
    """int64, of the block that a column was in."""


@stage(
    version="1",
    over=("config", "source"),
    transient=True,
    resources=Resources(device=1),
    keyed=Keyed(without=("max_iterations", "block"), later=("other_flavour",)),
    cost=propagator_cost,
)
def propagator(
    operator: WilsonOperator,
    sources: Sources,
    hierarchy: Hierarchy | None = None,
    *,
    at: At,
    solve: Solve,
    other_flavour: bool = False,
) -> Propagator:
    """S for all columns of a chunk's sources.

    other_flavour: of twisted quarks, that of -mu, as the hierarchy is. solve: of the even-odd system, by a
    solver of `stages.lqcd.solvers.named.REGULAR`, 'multigrid' with its hierarchy; how columns share blocks
    alters results within the tolerance only, and is in no key. Raises InputError, and NotConverged where a
    solve misses its tolerance, as beyond the critical kappa.
    """
    method = EvenOdd(solve.of_regular(hierarchy), WilsonSchur)
    counted = partial(schur_application, operator)

    def full(M: WilsonOperator) -> WilsonOperator:
        return M.other_flavour if other_flavour else M

    solved = _solved(at, operator, full, sources.fields, method, solve, counted, AMPLIFIED)
    return Propagator(*solved, sources.time)


@stage(
    version="1",
    over=("config", "source"),
    resources=Resources(device=1),
    labels={"parity": ("even", "odd")},
    cost=kept_cost,
)
def kept_propagator(propagator: Propagator) -> Propagator:
    """A propagator committed to the store, in pieces of one source and four columns."""
    return propagator


@stage(
    version="1",
    over=("config", "source"),
    transient=True,
    keyed=Keyed(without=("max_iterations", "block")),
    cost=staggered_propagator_cost,
)
def staggered_propagator(
    operator: StaggeredDslash,
    sources: StaggeredSources,
    deflation: StaggeredSpace | None = None,
    *,
    at: At,
    mass: float,
    solve: Solve,
) -> StaggeredPropagators:
    """M^-1 times all columns of a chunk's sources.

    mass: m of M = 2 m + D. solve: of 4 m^2 - D^2 on even sites, by a solver of
    `stages.lqcd.solvers.named.POSITIVE`; how columns share blocks is in no key. deflation: speeds up the
    solves. Raises InputError, and NotConverged where a solve misses its tolerance.
    """
    solver = solve.of_positive()
    method = EvenOdd(DeflatedSolver(solver, deflation) if deflation else solver, StaggeredSchur)
    counted, amplified = partial(staggered_application, operator), 2 + LARGEST / mass if mass else np.inf

    def full(dslash: StaggeredDslash) -> StaggeredOperator:
        return StaggeredOperator(dslash.astype(np.complex128), mass)

    return StaggeredPropagators(
        *_solved(at, operator, full, sources.fields, method, solve, counted, amplified)
    )


def _solved(
    at: At,
    operator: Operator,
    full: Callable[[Operator], ByParity],
    sources: Array,
    method: Solver,
    solve: Solve,
    counted: Counted,
    amplified: float,
) -> tuple[Array, NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Solutions for sources ``[parity, site, component, source, column]``, both residuals and iterations.

    full: M of the operator. counted: operations of the system's operator. amplified: times that a residual of
    M x = b may be larger than that of the system, where the chunk is one to be checked.
    """
    M, fields = full(operator), sources.reshape(*sources.shape[:3], -1)
    x, statistics = propagate(M, fields, method, solve.block, lambda *done: at.progress(*done))
    record_solves(at, solve, statistics, application=counted)
    if at.again:
        with other_kernels(at):
            check_fields("sources", sources, at.again("sources").fields)
            check_solutions(at, full(at.again("operator")), fields, x, statistics, amplified)
    shape, widths = sources.shape[3:], [len(block) for block in statistics.residual]
    return (
        x.reshape(sources.shape),
        np.concatenate(statistics.residual).reshape(shape),
        np.concatenate(statistics.full_residual).reshape(shape),
        np.repeat(statistics.iterations, widths).reshape(shape),
    )
