"""Time to solution of 192 right-hand sides: sequential CG, batched CG, block CGrQ; a Markdown table.

    python tests/benchmarks/time_to_solution.py --backend cuda --lattice 32 32 32 48 --mass 0.01

The sources are the even subsets (displacement 2, eight of them) of 24 Z2 noise vectors on one quenched
configuration with HISQ links. A row solves one block or more, for about `--seconds`, and is scaled to 192;
the last column says what was measured. Batched CG takes the same iterations whatever the width, so that a
wide block that would take longer is stopped and scaled to the iterations of the first finished width.

`--only` takes rows by their beginnings, such as `batched`, `block/double-single`, `block/double/16`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import Any

import numpy as np

from pipeline.worker.energy import energy_meter
from script import SMALL, PrintedTable, arguments_of, quenched, staggered
from stages.lqcd.dirac.staggered import NormalOperator
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.lattice.geometry import EVEN
from stages.lqcd.lattice.plaquette import plaquette
from stages.lqcd.noise.dilution import Dilution, dilute
from stages.lqcd.noise.vectors import noise_vectors
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.solution import Solution, SolveStatus
from workflows.benchmarks.machine import Machine
from workflows.benchmarks.staggered import FLOPS_PER_SITE

VECTORS, SUBSETS = 24, 8
RHS = VECTORS * SUBSETS
SEQUENTIAL = 8
WIDTHS = (8, 16, 24, 32, 48, 64)
NARROW = (1, 2, 4, 12)
"""Widths that batched CG shrinks to beside those: compiled before anything is timed."""

SOLVERS: dict[str, type[KrylovSolver]] = {
    "sequential": BatchedCG,
    "batched": BatchedCG,
    "block": BlockCGrQ,
}
PRECISIONS = ("double", "double-single")
SEED, LABEL = 1729, "time to solution"
TRIAL, MOST = 20, 50_000
"""Iterations of the untimed solve in front of each row, and the limit of a timed one."""

COLUMNS = (
    *("method", "precision", "N", "iterations", "s for 192", "speed-up", "GFLOP/s", "J/source"),
    *("residual", "measured"),
)


@dataclass(frozen=True)
class Row:
    """One method: seconds for all right-hand sides, joules per source, residual the largest.

    iterations: mean over the blocks. gflops: of the operator alone, all columns of all blocks counted.
    measured: what the row was scaled from.
    """

    iterations: float
    seconds: float
    gflops: float
    joules: float | None
    residual: float | None
    measured: str


class Study:
    """One operator and its sources."""

    def __init__(self, machine: Machine, operator: NormalOperator, tolerance: float, budget: float) -> None:
        self.operator, self.tolerance, self.budget = operator, tolerance, budget
        self.meter = energy_meter(machine.backend) or (lambda: 0.0)
        lattice = operator.dslash.lattice
        self.noise = noise_vectors(lattice, EVEN, LABEL, SEED, range(VECTORS), xp=machine.xp)
        self.partition = Dilution.parse({"displacement": 2}).partition(lattice, EVEN)

    def row(self, method: str, precision: str, width: int, whole: float | None) -> Row:
        """Blocks one after the other until the budget is used or all are done.

        whole: iterations of batched CG in this precision, where they are known.
        """
        limit, joules = MOST, 0.0
        step = self.seconds_per_iteration(method, precision, width)
        if method == "batched" and whole and whole * step > self.budget:
            limit = ceil(self.budget / step)
        solutions: list[Solution] = []
        for start in range(0, SEQUENTIAL if method == "sequential" else RHS, width):
            before = self.meter()
            solutions.append(self.solve(method, precision, start, width, limit))
            joules += self.meter() - before
            spent = sum(solution.seconds for solution in solutions)
            if method != "sequential" and spent * (1 + 1 / len(solutions)) > self.budget:
                break
        return self._scaled(solutions, joules, whole if limit < MOST else None)

    def _scaled(self, solutions: list[Solution], joules: float, whole: float | None) -> Row:
        """A row scaled to all right-hand sides, and from stopped solves to `whole` iterations."""
        iterations = float(np.mean([solution.iterations for solution in solutions]))
        solved = len(solutions) * solutions[0].residual.size
        seconds = sum(solution.seconds for solution in solutions)
        scale = 1.0 if whole is None else whole / iterations
        matvecs = sum(solution.matvecs for solution in solutions)
        return Row(
            whole or iterations,
            seconds * scale * RHS / solved,
            matvecs * 2 * FLOPS_PER_SITE * self.operator.shape[0] / seconds / 1e9,
            joules * scale / solved or None,
            max(float(solution.residual.max()) for solution in solutions) if whole is None else None,
            f"{solved} rhs" + ("" if whole is None else f", {iterations:.0f} iterations"),
        )

    def seconds_per_iteration(self, method: str, precision: str, width: int, trial: int = TRIAL) -> float:
        """Seconds of an iteration by a short solve, run twice: the first compiles."""
        solutions = [self.solve(method, precision, 0, width, trial) for _ in range(2)]
        return solutions[1].seconds / solutions[1].iterations

    def solve(self, method: str, precision: str, start: int, width: int, limit: int) -> Solution:
        """One block. Ends the program if it misses the tolerance for another reason than the limit."""
        solver = SOLVERS[method](self.tolerance, limit, precision)
        b: Array = dilute(self.noise, self.partition, range(start, start + width))
        solution = solver.solve(self.operator, b, on_failure="return")
        if solution.status is not SolveStatus.CONVERGED and (
            limit == MOST or solution.status is not SolveStatus.ITERATION_LIMIT
        ):
            raise SystemExit(f"{method}/{precision}/{width}: {solution.status.value}")
        return solution


def rows(only: Iterable[str]) -> Iterator[tuple[str, str, int]]:
    """Method, precision and width of each row that is asked for."""
    for precision in PRECISIONS:
        for method, width in [("sequential", 1), *product(("batched", "block"), WIDTHS)]:
            if any(f"{method}/{precision}/{width}/".startswith(f"{beginning}/") for beginning in only):
                yield method, precision, width


def main() -> None:
    """Measure the rows that the arguments ask for and print the table."""
    problem = {"beta": 6.0, "sweeps": 30, "mass": 0.01, "tolerance": 2e-12}
    options = {**problem, "seconds": 8.0, "only": ["sequential", "batched", "block"]}
    arguments = arguments_of(__doc__, lattice=SMALL, machine="cpu", options=options)
    machine, lattice = arguments.machine, arguments.lattice
    chain: dict[str, Any] = {"beta": arguments.beta, "seed": SEED, "sweeps": arguments.sweeps}
    thin = quenched(lattice, LABEL, **chain, xp=machine.xp)
    mean = plaquette(as_numpy(thin), lattice).total
    print(f"{machine.name}; {lattice}, beta = {arguments.beta:g}, {arguments.sweeps} sweeps, ", end="")
    print(f"plaquette {mean:.5f}, m = {arguments.mass:g}, tolerance {arguments.tolerance:g}.")
    A = NormalOperator(staggered(thin, lattice), arguments.mass)
    study, wanted = Study(machine, A, arguments.tolerance, arguments.seconds), list(rows(arguments.only))
    for precision in dict.fromkeys(precision for method, precision, _ in wanted if method == "batched"):
        for width in NARROW:
            study.seconds_per_iteration("batched", precision, width, trial=3)
    table, finished = PrintedTable(*COLUMNS), dict[tuple[str, str], Row]()
    for method, precision, width in wanted:
        batched = finished.get(("batched", precision))
        row = study.row(method, precision, width, batched.iterations if batched else None)
        if row.residual is not None:
            finished.setdefault((method, precision), row)
        sequential = finished.get(("sequential", precision))
        speedup = sequential and sequential.seconds / row.seconds
        times = row.iterations, row.seconds, speedup, row.gflops, row.joules
        table.add(method, precision, width, *times, row.residual, row.measured)


if __name__ == "__main__":
    main()
