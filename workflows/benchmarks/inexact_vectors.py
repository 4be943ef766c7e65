"""Iterations of block CGrQ deflated by vectors that carry an error: Markdown tables.

    python -m workflows.benchmarks.inexact_vectors [--lattice 8 8 8 16] [--beta 5.7] [--mass 0.01 0.002]
    [--rhs 16] [--vectors 16 64] [--tolerance 1e-10 1e-12] [--error 0 1e-10 ...]

HISQ links of one quenched configuration, the normal operator on the even and on the odd sites, Z2 noise; in
double precision and in single with reliable updates in double (double-single). The vectors are the lowest
eigenvectors on the even sites, each with a random vector of `error` times its norm added to it: noise of all
modes, as rounding is.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from stages.lqcd.dirac.staggered import NormalOperator, SquaredDslash
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.lattice.geometry import PARITIES
from stages.lqcd.noise.vectors import noise_vectors
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.deflation import DeflatedSolver, Deflation, StaggeredDeflation
from stages.lqcd.solvers.solution import Solution, SolveStatus
from workflows.benchmarks.script import SMALL, PrintedTable, arguments_of, quenched, staggered

SEED, LABEL, MOST = 271, "inexact vectors", 5000
INNER = {"double": None, "double-single": "single"}


def main() -> None:
    """Print a table for each mass and number of vectors."""
    problem = {"beta": 5.7, "sweeps": 40, "mass": [0.01, 0.002], "rhs": 16, "tolerance": [1e-10, 1e-12]}
    deflation = {"vectors": [16, 64], "error": [0.0, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2], "lanczos": 1e-12}
    arguments = arguments_of(__doc__, lattice=SMALL, machine="cpu", options={**problem, **deflation})
    machine, lattice = arguments.machine, arguments.lattice
    chain: dict[str, Any] = {"beta": arguments.beta, "seed": SEED, "sweeps": arguments.sweeps}
    dslash = staggered(quenched(lattice, LABEL, **chain, xp=machine.xp), lattice)
    print(f"{machine.name}; {lattice}, beta = {arguments.beta:g}, N = {arguments.rhs}.", flush=True)
    B = SquaredDslash(dslash)
    exact = BlockLanczos(max(arguments.vectors), 16, arguments.lanczos).solve(B, machine.xp).vectors
    sources = [
        noise_vectors(lattice, parity, LABEL, SEED, range(arguments.rhs), xp=machine.xp)
        for parity in range(2)
    ]
    for mass, vectors in product(arguments.mass, arguments.vectors):
        print(f"\n## m = {mass:g}, {vectors} vectors")
        spaces = [
            StaggeredDeflation(dslash, Deflation.measured(B, _with_error(exact[..., :vectors], error)))
            for error in arguments.error
        ]
        table = PrintedTable(
            "sites", "precision", "to", "none", *(f"error {error:g}" for error in arguments.error)
        )
        for parity, (precision, inner), tolerance in product(range(2), INNER.items(), arguments.tolerance):
            A, solver = NormalOperator(dslash, mass, parity), BlockCGrQ(tolerance, MOST, inner)
            solvers: list[Any] = [solver, *(DeflatedSolver(solver, space) for space in spaces)]
            counts = [_text(each.solve(A, sources[parity], on_failure="return")) for each in solvers]
            table.add(PARITIES[parity], precision, f"{tolerance:g}", *counts)


def _with_error(vectors: Array, error: float) -> Array:
    """The unit vectors ``[*shape, k]`` with random ones of this norm added."""
    rng, v = np.random.default_rng(SEED), as_numpy(vectors)
    noise = rng.normal(size=v.shape) + 1j * rng.normal(size=v.shape)
    noise /= np.linalg.norm(noise.reshape(-1, v.shape[-1]), axis=0)
    return to_device_like(np.ascontiguousarray(v + error * noise), vectors)


def _text(solution: Solution) -> str:
    """Iterations, or how the solve failed."""
    converged = solution.status is SolveStatus.CONVERGED
    return str(solution.iterations) if converged else f"{solution.status.name.lower()} {solution.iterations}"


if __name__ == "__main__":
    main()
