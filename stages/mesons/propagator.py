"""Stages of quark propagators: solved for in blocks, handed on in memory, or kept in the store on request."""

from __future__ import annotations

from functools import partial
from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Dims, Keyed, Resources, stage
from stages.lqcd.dirac.application import schur_application
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.multigrid.hierarchy import Hierarchy
from stages.lqcd.solvers.even_odd import EvenOdd, propagate
from stages.lqcd.solvers.named import Solve
from stages.mesons.costs import kept_cost, propagator_cost
from stages.mesons.sources import Sources
from stages.shared.kernel_choices import recorded_choices
from stages.shared.second_path import check_fields, check_solutions, other_kernels
from stages.shared.solve_record import record_solves

AMPLIFIED = 20.0
"""Times that a residual of M x = b may be larger than that of the Schur complement: |A|, with room."""


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


@stage(
    version="1",
    over=("config", "source"),
    transient=True,
    resources=Resources(device=1),
    keyed=Keyed(without=("max_iterations", "block")),
    cost=propagator_cost,
)
def propagator(
    operator: WilsonOperator,
    sources: Sources,
    hierarchy: Hierarchy | None = None,
    *,
    at: At,
    solve: Solve,
) -> Propagator:
    """S for all columns of a chunk's sources.

    solve: of the even-odd system, by a solver of `stages.lqcd.solvers.named.REGULAR`, 'multigrid' with its
    hierarchy; how columns share blocks alters results within the tolerance only, and is in no key. Raises
    InputError, and NotConverged where a solve misses its tolerance, as beyond the critical kappa.
    """
    method = EvenOdd(solve.of_regular(hierarchy), WilsonSchur)
    fields = sources.fields.reshape(*sources.fields.shape[:3], -1)
    with recorded_choices(at):
        x, statistics = propagate(operator, fields, method, solve.block, lambda *done: at.progress(*done))
    record_solves(at, solve, statistics, application=partial(schur_application, operator))
    if at.again:
        with other_kernels(at):
            check_fields("sources", sources.fields, at.again("sources").fields)
            check_solutions(at, at.again("operator"), fields, x, statistics, AMPLIFIED)
    shape = sources.fields.shape[3:]
    widths = [len(block) for block in statistics.residual]
    return Propagator(
        x.reshape(sources.fields.shape),
        np.concatenate(statistics.residual).reshape(shape),
        np.concatenate(statistics.full_residual).reshape(shape),
        np.repeat(statistics.iterations, widths).reshape(shape),
        sources.time,
    )


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
