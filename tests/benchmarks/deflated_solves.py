"""Iterations and time of solves deflated by 0, 16, 64, 256 vectors, masses from strange to light.

    python tests/benchmarks/deflated_solves.py [--backend cuda] [--lattice 8 8 8 16] [--beta 5.7]
    [--mass 0.05 0.01 0.001] [--vectors 0 16 64 256] [--rhs 16] [--precision double] [--lanczos 1e-10]
    [--gpus 1] [--once]

HISQ links of one quenched configuration, the normal operator on the even sites, Z2 noise, eigenvectors by
block Lanczos, twice (the first time with kernels to compile, with `--once` one cycle), in the precision in
which a run searches. The fastest of some equal solves counts, after one to 1e-2. Columns: kappa, the
condition number that remains, from the first eigenvalue that is not deflated (of the last vectors: their own)
and the upper end of the Lanczos window; iterations, and their ratio to sqrt(kappa) / 2 ln(2 / tolerance);
corrections in the subspace and the milliseconds that all of them take, timed alone; milliseconds of the
solve; the ratio of the latter to no vectors; joules of a solve. Times and joules are per right-hand side.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import numpy as np

from script import (
    SMALL,
    PrintedTable,
    arguments_of,
    devices_of,
    metered,
    quenched,
    searched_twice,
    staggered,
    stored,
    timed,
)
from stages.lqcd.dirac.staggered import NormalOperator, SquaredDslash
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import EVEN
from stages.lqcd.noise.vectors import noise_vectors
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.deflation import DeflatedSolver, StaggeredSpace
from stages.lqcd.solvers.solution import Solution
from stages.lqcd.solvers.space import Space
from workflows.benchmarks.machine import fastest

SEED = 271
MOST = 100_000
"""Iterations."""
SOLVERS: dict[str, tuple[Any, str | None]] = {
    "batched_cg double": (BatchedCG, "double"),
    "batched_cg double-single": (BatchedCG, "double-single"),
    "batched_cg double-half": (BatchedCG, "double-half"),
    "block_cgrq double": (BlockCGrQ, "double"),
    "block_cgrq double-single": (BlockCGrQ, "double-single"),
}
COLUMNS = (
    *("mass", "vectors", "kappa", "iterations", "of theory"),
    *("corrections", "ms of them", "ms", "speed-up", "joules"),
)


def main() -> None:
    """Print a table for each solver that the arguments name."""
    problem = {"beta": 5.7, "sweeps": 40, "mass": [0.05, 0.01, 0.001], "rhs": 16, "tolerance": 1e-10}
    vectors = {"vectors": [0, 16, 64, 256], "precision": ("double", "single"), "block": 16, "lanczos": 1e-10}
    options = {**problem, **vectors, "solver": list(SOLVERS), "repeats": 3, "gpus": 1, "once": False}
    arguments = arguments_of(__doc__, lattice=SMALL, machine="cpu", options=options)
    with devices_of(arguments):
        measure(arguments)


def measure(arguments: argparse.Namespace) -> None:
    """Search the vectors and print the tables."""
    machine, lattice = arguments.machine, arguments.lattice
    chain: dict[str, Any] = {"beta": arguments.beta, "seed": SEED, "sweeps": arguments.sweeps}
    thin = quenched(lattice, "deflated solves", **chain, xp=machine.xp)
    dslash = staggered(thin, lattice)
    B, wanted = SquaredDslash(dslash), max(arguments.vectors)
    pairs, cold, drawn = searched_twice(arguments, dslash, arguments.block, arguments.once)
    print(f"{machine.name}; {lattice}, beta = {arguments.beta:g}; {arguments.rhs} right-hand sides ", end="")
    print(f"to {arguments.tolerance:g}; vectors in {arguments.precision} precision")
    print(f"{wanted} eigenpairs, residual {pairs.residuals.max():.1e}: {pairs.seconds:.2f} s ", end="")
    print(f"(first {cold:.2f}), {drawn or 0:.0f} J, ", end="")
    print(f"{pairs.matvecs} applications of B; lowest {pairs.values[0]:.3g}, last {pairs.values[-1]:.3g}")
    vectors = stored(pairs, arguments.precision)
    even, seconds, _ = timed(machine, partial(Space.measured, B, vectors))
    space = StaggeredSpace(dslash, even)
    print(
        f"largest residual of the vectors as they are used: {np.asarray(even.residuals).max():.1e}, ", end=""
    )
    print(f"measured with their matrices in {seconds:.2f} s")
    del vectors
    upper, values = pairs.window[1], pairs.values
    del pairs, thin
    b = noise_vectors(lattice, EVEN, "deflated solves", SEED, range(arguments.rhs), xp=machine.xp)
    for name in arguments.solver:
        print(f"\n## {name}")
        table = PrintedTable(*COLUMNS)
        for mass in arguments.mass:
            A, plain = NormalOperator(dslash, mass), 0.0
            for count in arguments.vectors:
                chosen = space.lowest(count) if count else None
                remaining = values[min(count, len(values) - 1)]
                kappa = (upper + 4 * mass**2) / (remaining + 4 * mass**2)
                theory = np.sqrt(kappa) / 2 * np.log(2 / arguments.tolerance)
                solution, correcting, joules = measured(arguments, A, chosen, name, b)
                seconds, iterations = solution.seconds, solution.iterations
                plain = plain or seconds
                counts = iterations, iterations / theory, solution.extras["deflations"]
                times = (1e3 * part / arguments.rhs for part in (correcting, seconds))
                joules = None if joules is None else joules / arguments.rhs
                table.add(mass, count, kappa, *counts, *times, plain / seconds, joules)


def measured(
    arguments: argparse.Namespace, A: NormalOperator, space: StaggeredSpace | None, name: str, b: Array
) -> tuple[Solution, float, float | None]:
    """The fastest of some solves, seconds of all its corrections, timed alone, and joules of a solve."""
    method, precision = SOLVERS[name]
    rough, solver = (method(tolerance, MOST, precision) for tolerance in (1e-2, arguments.tolerance))
    alone = 0.0
    if space is not None:
        rough, solver = DeflatedSolver(rough, space), DeflatedSolver(solver, space)
        correct = space.correction(A)
        alone = fastest(arguments.machine, lambda: correct(b))
    rough.solve(A, b)
    solves, joules = metered(
        arguments.machine.backend, lambda: [solver.solve(A, b) for _ in range(arguments.repeats)]
    )
    solution = min(solves, key=lambda run: run.seconds)
    per_solve = None if joules is None else joules / arguments.repeats
    return solution, solution.extras["deflations"] * alone, per_solve


if __name__ == "__main__":
    main()
