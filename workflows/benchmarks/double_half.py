"""Solves by batched CG in double, double-single and double-half: iterations, seconds, residuals; a table.

    python -m workflows.benchmarks.double_half [--lattice 8 8 8 16] [--mass 0.02 0.005] [--rhs 1 16] \
        [--tolerance 1e-10] [--repeats 2] [--precision double double-single double-half] [--backend cuda]

One quenched configuration with HISQ links, antiperiodic in time, the normal operator on the even sites, Z2
noise. Links are packed as an operator for so many right-hand sides has them. Every solve is made `--repeats`
times, of which the first compiles; seconds are the least. ps: of an iteration, per even site and right-hand
side.
"""

from __future__ import annotations

from itertools import product

from stages.lqcd.dirac.staggered import NormalOperator, Packing, StaggeredDslash
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.lattice.geometry import EVEN
from stages.lqcd.noise.vectors import noise_vectors
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.named import PRECISIONS
from workflows.benchmarks.script import SMALL, PrintedTable, arguments_of, quenched

SEED, LABEL = 271, "solver table"
MOST = 100_000


def main() -> None:
    """Print the table of the operator that the arguments name."""
    problem = {"beta": 5.7, "sweeps": 40, "mass": [0.02, 0.005], "tolerance": [1e-10]}
    options = {**problem, "repeats": 2, "rhs": [1, 16], "precision": list(PRECISIONS)}
    arguments = arguments_of(__doc__, lattice=SMALL, machine="cpu", options=options)
    machine, lattice = arguments.machine, arguments.lattice
    thin = quenched(lattice, LABEL, beta=arguments.beta, seed=SEED, sweeps=arguments.sweeps, xp=machine.xp)
    links = hisq_links(thin, lattice, boundary="antiperiodic", naik_epsilon=0.0)
    print(f"{machine.name}; {lattice}, beta = {arguments.beta:g}, {arguments.sweeps} sweeps.")
    table = PrintedTable(
        "m", "tolerance", "N", "precision", "iterations", "replacements", "s", "ps", "residual"
    )
    for rhs in arguments.rhs:
        dslash = StaggeredDslash(links, packing=Packing(block=rhs))
        b = noise_vectors(lattice, EVEN, LABEL, SEED, range(rhs), xp=machine.xp)
        for mass, tolerance, precision in product(arguments.mass, arguments.tolerance, arguments.precision):
            A, inner = NormalOperator(dslash, mass), PRECISIONS[precision]
            solver = BatchedCG(tolerance, MOST, inner)
            solutions = [solver.solve(A, b, on_failure="return") for _ in range(arguments.repeats)]
            solution = min(solutions, key=lambda each: each.seconds)
            ps = 1e12 * solution.seconds / solution.iterations / lattice.half_volume / rhs
            counts = solution.iterations, solution.extras["replacements"]
            table.add(mass, tolerance, rhs, precision, *counts, solution.seconds, ps, solution.residual.max())


if __name__ == "__main__":
    main()
