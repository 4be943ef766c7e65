"""Iterations and time of batched CG and block CGrQ for N right-hand sides, as Markdown tables.

    python -m workflows.benchmarks.iteration_counts [--lattice 8 8 8 16] [--beta 5.7] [--mass 0.01]
    [--rhs N ...]

HISQ links of one quenched configuration, the normal operator on the even sites, Z2 noise. Both solvers run in
double precision, and in single precision with reliable updates in double. Times are wall times of a second
solve, when the kernels are compiled.
"""

from __future__ import annotations

from itertools import product

from stages.lqcd.dirac.staggered import NormalOperator
from stages.lqcd.noise.vectors import noise_vectors
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.krylov import KrylovSolver
from workflows.benchmarks.script import SMALL, PrintedTable, arguments_of, quenched, staggered

SEED, SWEEPS = 271, 40
METHODS = list(product((BatchedCG, BlockCGrQ), (None, "single")))
TITLES = [f"{method.__name__}, {'single in double' if inner else 'double'}" for method, inner in METHODS]


def main() -> None:
    """Print the tables of the operator that the arguments name."""
    options = {"beta": 5.7, "mass": 0.01, "tolerance": [5e-6, 1e-10], "rhs": [1, 4, 8, 16, 32, 64]}
    arguments = arguments_of(__doc__, lattice=SMALL, options=options)
    lattice = arguments.lattice
    thin = quenched(lattice, "solver table", beta=arguments.beta, seed=SEED, sweeps=SWEEPS)
    normal = NormalOperator(staggered(thin, lattice), arguments.mass)
    print(f"{lattice}, beta = {arguments.beta:g}, m = {arguments.mass:g}.")
    for tolerance in arguments.tolerance:
        print(f"\n## Tolerance {tolerance:g}")
        table = PrintedTable("N", *TITLES)
        for rhs in arguments.rhs:
            table.add(
                rhs, *(measured(normal, rhs, method(tolerance, inner=inner)) for method, inner in METHODS)
            )


def measured(normal: NormalOperator, rhs: int, solver: KrylovSolver) -> str:
    """Iterations, the time of one per even site and right-hand side, and of the solve per right-hand side."""
    lattice = normal.dslash.lattice
    b = noise_vectors(lattice, normal.parity, "solver table", SEED, range(rhs), dtype=normal.dtype)
    solver.solve(normal, b)
    solution = solver.solve(normal, b)
    step = solution.seconds / solution.iterations / lattice.half_volume / rhs
    return f"{solution.iterations} ({step * 1e9:.0f} ns, {solution.seconds / rhs * 1e3:.0f} ms)"


if __name__ == "__main__":
    main()
