"""Solves in double, double-single and double-half: iterations, seconds, residuals; a Markdown table.

    python tests/benchmarks/double_half.py [--quarks hisq] [--lattice 8 8 8 16] [--mass 0.02 0.005] \
        [--solver bicgstab] [--rhs 1 16] [--tolerance 1e-10] [--precision double double-single double-half] \
        [--repeats 1] [--backend cuda]

One quenched configuration, antiperiodic in time. HISQ quarks: batched CG, the normal operator on the even
sites, Z2 noise, links packed as an operator for so many right-hand sides has them. Wilson quarks with a
clover term (`--csw`): BiCGstab or, as `cgnr`, conjugate gradients on the normal equations, the symmetric
Schur complement of the even sites, uniform random sources. A
solve to 1e-2 compiles before those that are measured, of which the shortest counts; narrower blocks, to which
a block comes only later, are compiled in the first of them. ps: of an iteration, per even site and
right-hand side.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

from mixed_iterations import normal_cg
from script import SMALL, PrintedTable, arguments_of, quenched, wilson
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.lattice.geometry import EVEN
from stages.lqcd.noise.vectors import noise_vectors
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.named import PRECISIONS
from workflows.benchmarks.machine import random_field

SEED, LABEL = 271, "solver table"
MOST, LOOSE = 100_000, 1e-2


def main() -> None:
    """Print the table of the operator that the arguments name."""
    problem = {"beta": 5.7, "csw": 1.0, "sweeps": 40, "mass": [0.02, 0.005], "tolerance": [1e-10]}
    choices = {"quarks": ("hisq", "wilson"), "solver": tuple(WILSON)}
    options = {**choices, **problem, "rhs": [1, 16], "precision": list(PRECISIONS)}
    options["repeats"] = 1
    arguments = arguments_of(__doc__, lattice=SMALL, machine="cpu", options=options)
    machine, lattice = arguments.machine, arguments.lattice
    thin = quenched(lattice, LABEL, beta=arguments.beta, seed=SEED, sweeps=arguments.sweeps, xp=machine.xp)
    print(f"{machine.name}; {lattice}, beta = {arguments.beta:g}, {arguments.sweeps} sweeps.")
    solver, systems = (hisq if arguments.quarks == "hisq" else wilson_clover)(arguments, thin)
    table = PrintedTable(
        "m", "tolerance", "N", "precision", "iterations", "replacements", "s", "ps", "residual"
    )
    for rhs in arguments.rhs:
        system, b = systems(rhs)
        for mass, tolerance, precision in product(arguments.mass, arguments.tolerance, arguments.precision):
            A = system(mass)
            solver(LOOSE, MOST, precision).solve(A, b)
            solve = partial(solver(tolerance, MOST, precision).solve, A, b, on_failure="return")
            solution = min((solve() for _ in range(arguments.repeats)), key=lambda each: each.seconds)
            ps = 1e12 * solution.seconds / solution.iterations / lattice.half_volume / rhs
            counts = solution.iterations, solution.extras["replacements"]
            table.add(mass, tolerance, rhs, precision, *counts, solution.seconds, ps, solution.residual.max())


Systems = Callable[[int], tuple[Callable[[float], Any], Array]]
"""By the number of right-hand sides: the operator by mass, and the right-hand sides."""


WILSON: dict[str, Callable[..., Any]] = {"bicgstab": BiCGstab, "cgnr": normal_cg}
"""Makers of solvers of Wilson quarks from tolerance, limit and precision."""


def hisq(arguments: Namespace, thin: Array) -> tuple[Callable[..., Any], Systems]:
    """The solver and the systems of HISQ quarks."""
    lattice, xp = arguments.lattice, arguments.machine.xp
    links = hisq_links(thin, lattice, boundary="antiperiodic", naik_epsilon=0.0)

    def systems(rhs: int) -> tuple[Callable[[float], Any], Array]:
        dslash = StaggeredDslash(links, packing=Packing(block=rhs))
        return partial(NormalOperator, dslash), noise_vectors(lattice, EVEN, LABEL, SEED, range(rhs), xp=xp)

    return BatchedCG, systems


def wilson_clover(arguments: Namespace, thin: Array) -> tuple[Callable[..., Any], Systems]:
    """The solver and the systems of Wilson quarks with a clover term."""

    def system(mass: float) -> WilsonSchur:
        return WilsonSchur(wilson(thin, arguments.lattice, mass, arguments.csw))

    def systems(rhs: int) -> tuple[Callable[[float], Any], Array]:
        shape = arguments.lattice.half_volume, 12, rhs
        return system, random_field(arguments.machine, shape, complex, SEED)

    return WILSON[arguments.solver], systems


if __name__ == "__main__":
    main()
