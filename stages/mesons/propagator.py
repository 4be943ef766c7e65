"""Stages of quark propagators: solved for in blocks, handed on in memory, or kept in the store on request."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Dims, Resources, stage
from stages.lqcd.dirac.wilson import WilsonOperator
from stages.lqcd.multigrid.hierarchy import Hierarchy
from stages.lqcd.spectroscopy.even_odd import Propagation, propagate
from stages.lqcd.spectroscopy.methods import make_method
from stages.mesons.sources import Sources
from stages.shared.kernel_choices import recorded_choices


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
    unkeyed=("max_iterations", "block"),
)
def propagator(
    operator: WilsonOperator,
    sources: Sources,
    hierarchy: Hierarchy | None = None,
    *,
    at: At,
    solver: str,
    tolerance: float,
    precision: str = "double-single",
    max_iterations: int = 20_000,
    block: int = 24,
) -> Propagator:
    """S for all columns of a chunk's sources, `block` right-hand sides at a time.

    solver: of the even-odd system (`stages.lqcd.spectroscopy.methods.SOLVERS`), 'multigrid' with its
    hierarchy. precision: 'double', or 'double-single' (single inside, residuals in double). tolerance: of |b
    - A x| / |b|, every column; how columns share blocks alters results within it only, and is in no key.
    Raises InputError, and NotConverged where a solve misses its tolerance, as beyond the critical kappa.
    """
    method = make_method(solver, precision, tolerance, max_iterations, hierarchy)
    fields = sources.fields.reshape(*sources.fields.shape[:3], -1)
    with recorded_choices(at):
        x, made = propagate(operator, fields, method, block, lambda done, total: at.progress(done, total))
    record(at, solver, precision, made)
    shape = sources.fields.shape[3:]
    widths = [len(block) for block in made.residual]
    return Propagator(
        x.reshape(sources.fields.shape),
        np.concatenate(made.residual).reshape(shape),
        np.concatenate(made.full_residual).reshape(shape),
        np.repeat(made.iterations, widths).reshape(shape),
        sources.time,
    )


@stage(
    version="1", over=("config", "source"), resources=Resources(device=1), labels={"parity": ("even", "odd")}
)
def kept_propagator(propagator: Propagator) -> Propagator:
    """The same, committed to the store, in pieces of one source and four columns."""
    return propagator


def record(at: At, solver: str, precision: str, made: Propagation) -> None:
    """Keeps with the chunk how it was solved; residuals are the largest of all columns."""
    rhs = sum(len(block) for block in made.residual)
    at.record(
        solver=solver,
        precision=precision,
        status=made.status,
        rhs=rhs,
        iterations=made.iterations,
        matvecs=made.matvecs,
        residual_max=max(float(np.max(block)) for block in made.residual),
        full_residual_max=max(float(np.max(block)) for block in made.full_residual),
        solve_seconds=made.seconds,
        seconds_per_rhs=made.seconds / rhs,
        history=[float(f"{value:.3e}") for value in made.history],
    )
