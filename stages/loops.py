"""Stages that measure quark loops: stochastic ones per noise vector, and the exact trace on tiny lattices."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, NamedTuple

import numpy as np

from pipeline import At, Dims, Resources, stage
from stages.dirac.staggered import StaggeredDslash
from stages.estimators.exact import exact_loops as exact_trace
from stages.estimators.stochastic import stochastic_loops
from stages.estimators.trace import LoopTrace, Progress
from stages.estimators.trace import current_links as choose_links
from stages.kernels.choices import choices_used
from stages.kernels.dispatch import array_module
from stages.lattice.errors import InputError
from stages.lattice.geometry import DIRECTIONS, PARITIES
from stages.noise import Dilution, noise_vectors
from stages.solvers.block_cgrq import BlockCGrQ
from stages.solvers.cg import BatchedCG
from stages.solvers.krylov import KrylovSolver

SOLVERS: dict[str, type[KrylovSolver]] = {"block_cgrq": BlockCGrQ, "batched_cg": BatchedCG}
LABELS = {"direction": DIRECTIONS, "parity": PARITIES}
INNER = {"double": None, "double-single": "single"}


class CurrentLoops(NamedTuple):
    """Loops of each noise vector, float64, lattice units, MILC's sign and normalisation.

    current: J_mu(t) = - sum_x Im tr { eta_mu U_mu(x) [D (4 m^2 - D^2)^-1](x + mu, x) }, direction x, y, z, t;
    condensate: psibar-psi = (2/V) tr M^-1 over the sites of a parity.
    """

    current: Annotated[np.ndarray, Dims("noise", "direction", "time")]
    condensate: Annotated[np.ndarray, Dims("noise", "parity")]


class ExactLoops(NamedTuple):
    """As `CurrentLoops`, without noise."""

    current: Annotated[np.ndarray, Dims("direction", "time")]
    condensate: Annotated[np.ndarray, Dims("parity")]


@stage(
    version="1",
    over=("config", "noise"),
    resources=Resources(device=1),
    chunk_in_key=True,
    unkeyed=("max_iterations",),
    labels=LABELS,
)
def current_loops(
    dslash: StaggeredDslash,
    *,
    at: At,
    mass: float,
    tolerance: float,
    seed: int,
    noise: str,
    dilution: Mapping[str, Any],
    current_links: str = "thin",
    solver: str = "block_cgrq",
    precision: str = "double-single",
    max_iterations: int = 20_000,
    block: int = 16,
) -> CurrentLoops:
    """The one-link taste-singlet vector current and the condensate from the noise vectors of a chunk.

    mass: m of M = 2 m + D. tolerance: of |eta - A x| / |eta| for A = 4 m^2 - D^2, every right-hand side.
    noise: 'z2', 'z4', 'u1' or 'gaussian', with `seed` and the configuration's label. dilution: {color, time,
    displacement} (`stages.noise.dilution`). current_links: 'thin', 'smeared' or 'fat'. solver: 'block_cgrq'
    or 'batched_cg', `block` right-hand sides at a time. precision: 'double', or 'double-single' (single
    inside, residuals in double). Raises InputError, and NotConverged where a solve misses its tolerance.
    """
    trace = loop_trace(dslash, mass, current_links, make_solver(solver, precision, tolerance, max_iterations))
    label, indices = str(at.one("config")), [int(index) for index in at["noise"]]
    xp = array_module(dslash.links.thin)
    sources = [noise_vectors(dslash.lattice, parity, label, seed, indices, noise, xp=xp) for parity in (0, 1)]
    with choices_used() as choices:
        loops = stochastic_loops(trace, sources, Dilution.parse(dilution), block, progress_of(trace, at))
    record(trace, at, solver, precision, choices)
    return CurrentLoops(*loops)


@stage(
    version="1",
    over=("config",),
    resources=Resources(device=1),
    unkeyed=("max_iterations",),
    labels=LABELS,
)
def exact_loops(
    dslash: StaggeredDslash,
    *,
    at: At,
    mass: float,
    tolerance: float,
    current_links: str = "thin",
    solver: str = "block_cgrq",
    precision: str = "double-single",
    max_iterations: int = 20_000,
    block: int = 16,
) -> ExactLoops:
    """The same loops exactly, by a point source on every site and colour; parameters as for `current_loops`.

    Raises InputError above 6^4 sites.
    """
    trace = loop_trace(dslash, mass, current_links, make_solver(solver, precision, tolerance, max_iterations))
    with choices_used() as choices:
        loops = exact_trace(trace, array_module(dslash.links.thin), block, progress_of(trace, at))
    record(trace, at, solver, precision, choices)
    return ExactLoops(loops.current[0], loops.density[0])


def make_solver(name: str, precision: str, tolerance: float, max_iterations: int) -> KrylovSolver:
    """The solver that a parameter file names. Raises InputError."""
    for kind, value, known in (("solver", name, SOLVERS), ("precision", precision, INNER)):
        if value not in known:
            raise InputError(f"{kind} must be one of {', '.join(known)}, got {value!r}")
    return SOLVERS[name](tolerance, max_iterations, INNER[precision])


def loop_trace(dslash: StaggeredDslash, mass: float, choice: str, solver: KrylovSolver) -> LoopTrace:
    """What solves and contracts, in double precision outside."""
    return LoopTrace(dslash.astype(np.complex128), choose_links(dslash.links, choice), mass, solver)


def progress_of(trace: LoopTrace, at: At) -> Progress:
    """Reports blocks done, with the iterations of the latest and the largest residual so far."""

    def report(done: int, total: int) -> None:
        at.progress(done, total, iterations=trace.record.iterations[-1], residual=trace.record.residual)

    return report


def record(trace: LoopTrace, at: At, solver: str, precision: str, choices: Collection[str]) -> None:
    """Keeps with the chunk how it was solved; residuals are the largest of all right-hand sides.

    choices: launch shapes chosen by measurement, recorded where there are any; they may alter rounding.
    """
    solves = trace.record
    if choices:
        at.record(kernel_choices=sorted(choices))
    at.record(
        solver=solver,
        precision=precision,
        extents=list(trace.lattice.extents),
        rhs=solves.rhs,
        iterations=solves.iterations,
        residual_max=solves.residual,
        full_residual_max=solves.full_residual,
        solve_seconds=solves.seconds,
        seconds_per_rhs=solves.seconds / solves.rhs,
        history=[float(f"{value:.3e}") for value in solves.history],
    )
