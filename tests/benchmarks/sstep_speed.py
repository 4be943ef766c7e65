"""Solves by s-step conjugate gradients on the HISQ normal operator, beside batched CG.

    python tests/benchmarks/sstep_speed.py [--backend cpu] [--gpus 2] [--lattice X Y Z T] [--rhs 1 4]

Links are quenched ones; solves are timed by the clock, every residual is recomputed from x in double. With
--gpus 2 the lattice lies on so many.
"""

from __future__ import annotations

from argparse import Namespace
from itertools import product
from typing import Any

import numpy as np

from script import PrintedTable, arguments_of, devices_of, quenched
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.gauge.hisq import hisq_links
from stages.lqcd.kernels import block_blas
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.solution import Solution
from stages.lqcd.solvers.sstep_basis import CHEBYSHEV, NEWTON
from stages.lqcd.solvers.sstep_cg import SStepCG
from workflows.benchmarks.machine import Machine, random_field


def main() -> None:
    """Print the tables."""
    given = arguments_of(
        __doc__,
        lattice=(16, 16, 16, 48),
        machine="cuda",
        options={
            "rhs": [1, 4],
            "steps": [4, 8, 16],
            "mass": [0.05, 0.02, 0.005],
            "basis": [NEWTON, CHEBYSHEV],
            "precision": ["double-single", "double"],
            "tolerance": 1e-10,
            "beta": 6.0,
            "samples": 4,
            "gpus": 1,
        },
    )
    machine = given.machine
    with devices_of(given):
        print(f"{given.gpus} x {machine.name}, {given.lattice}")
        thin = quenched(given.lattice, "sstep", beta=given.beta, seed=31, sweeps=20, xp=machine.xp)
        links = hisq_links(thin, given.lattice, boundary="antiperiodic", naik_epsilon=0.0)
        dslash = StaggeredDslash(links, packing=Packing(block=2 * max(given.rhs)))
        del thin, links
        for rhs, mass in product(given.rhs, given.mass):
            solves(given, NormalOperator(dslash, mass), rhs)


def solves(given: Namespace, A: NormalOperator, rhs: int) -> None:
    """Iterations and times to the tolerance, means over blocks of random right-hand sides.

    In a block of several their scales differ, and one is zero.
    """
    machine, samples = given.machine, max(2, given.samples // rhs)
    scales = machine.xp.asarray([1, 1e-8, 0, 1e6, *[1] * rhs][:rhs])
    bs = [scales * random_field(machine, (*A.shape, rhs), np.complex128, seed) for seed in range(samples)]
    print(f"\nm = {A.mass}, N = {rhs}, to {given.tolerance:g}: {samples} blocks of right-hand sides")
    table = PrintedTable("precision", "solver", "s", "iterations", "of CG", "ms", "of CG", "residual")
    for precision in given.precision:
        common: dict[str, Any] = {"tolerance": given.tolerance, "precision": precision}
        plain = solved(machine, BatchedCG(**common), A, bs)
        table.add(precision, "batched CG", None, *shown(plain, plain))
        for basis, s in product(given.basis, given.steps):
            solver = SStepCG(**common, s=s, basis=basis, replace=False)
            table.add(precision, basis, s, *shown(solved(machine, solver, A, bs), plain))


def solved(machine: Machine, solver: KrylovSolver, A: NormalOperator, bs: list[Array]) -> np.ndarray:
    """Iterations, seconds, largest residual of each block, ``[3, blocks]``, after a solve that compiles."""
    solver.solve(A, bs[0], on_failure="return")
    numbers = []
    for b in bs:
        solutions: list[Solution] = []

        def solve(b: Array = b, to: list[Solution] = solutions) -> None:
            to.append(solver.solve(A, b, on_failure="return"))

        seconds = machine.wall_seconds(solve)
        missed, norms = (as_numpy(block_blas.norms(each)) for each in (b - A.apply(solutions[0].x), b))
        residual = float((missed / np.where(norms > 0, norms, 1)).max())
        numbers.append((solutions[0].iterations, seconds, residual))
    return np.array(numbers).T


def shown(found: np.ndarray, plain: np.ndarray) -> list[object]:
    """Means, and those of the ratios to batched CG."""
    (iterations, seconds, _), (steps, times) = found.mean(axis=1), (found[:2] / plain[:2]).mean(axis=1)
    residual = f"{found[2].max():.1e}"
    return [round(iterations, 1), round(steps, 3), round(1e3 * seconds, 2), round(times, 3), residual]


if __name__ == "__main__":
    main()
