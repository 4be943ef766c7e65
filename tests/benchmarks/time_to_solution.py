"""Time to solution of 192 right-hand sides: sequential CG, batched CG, block CGrQ; a Markdown table by mass.

    python tests/benchmarks/time_to_solution.py --backend cuda --lattice 32 32 32 48 --mass 0.02 0.005
    python tests/benchmarks/time_to_solution.py --backend cuda --lattice 16 16 16 32 --whole
    python tests/benchmarks/time_to_solution.py --backend cuda --lattice 48 48 48 64 --gpus 4

The sources are the even subsets (displacement 2, eight of them) of 24 Z2 noise vectors on one quenched
configuration with HISQ links, which are packed on a GPU as blocks of each width read them. A row solves one
block or more, for about `--seconds`, the sequential ones 8 sources, and is scaled to 192; the last column
says what was measured. Batched CG takes the same iterations whatever the width, so that a wide block that
would take longer is stopped and scaled to the iterations of the first finished width. With `--whole` every
row solves all 192. Half precision is that of batched CG up to N = 4: in wider blocks it is single.

`--only` takes rows by their beginnings, such as `batched`, `block/double-single`, `block/double/16`.
`--gpus` has the lattice on so many, all of whose joules count.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import ceil, inf
from typing import Any

import numpy as np

from pipeline.worker.energy import energy_meter
from script import SMALL, PrintedTable, arguments_of, devices_of, quenched, staggered
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.kernels.link_forms import FEW, NARROW, WIDE, Packing
from stages.lqcd.lattice.geometry import EVEN
from stages.lqcd.lattice.plaquette import plaquette
from stages.lqcd.noise.dilution import Dilution, dilute
from stages.lqcd.noise.vectors import noise_vectors
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.named import PRECISIONS
from stages.lqcd.solvers.recurrence import WIDTHS as NARROWED
from stages.lqcd.solvers.solution import Solution, SolveStatus
from workflows.benchmarks.machine import Machine
from workflows.benchmarks.staggered import FLOPS_PER_SITE

VECTORS, SUBSETS = 24, 8
RHS = VECTORS * SUBSETS
SEQUENTIAL = 8
HALF_WIDTHS, WIDTHS = (2, FEW), (8, 16, 24, 32, 48, 64)
SOLVERS: dict[str, type[KrylovSolver]] = {
    "sequential": BatchedCG,
    "batched": BatchedCG,
    "block": BlockCGrQ,
}
SEED, LABEL = 1729, "time to solution"
FEWEST, TRIAL, MOST = 3, 20, 50_000
"""Iterations of a solve that compiles and of those in front of a row, and the limit of a timed one."""

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


class MissedError(Exception):
    """A solve ended without its tolerance."""


class Study:
    """One configuration and its sources."""

    def __init__(self, machine: Machine, dslash: StaggeredDslash, arguments: Namespace) -> None:
        self.dslash, self.tolerance, self.whole = dslash, arguments.tolerance, arguments.whole
        self.budget = inf if self.whole else arguments.seconds
        self.meter = energy_meter(machine.backend) or (lambda: 0.0)
        self.noise = noise_vectors(dslash.lattice, EVEN, LABEL, SEED, range(VECTORS), xp=machine.xp)
        self.partition = Dilution.parse({"displacement": 2}).partition(dslash.lattice, EVEN)

    @cache  # noqa: B019 - a script has one study
    def packed(self, width: int) -> StaggeredDslash:
        """D, its links packed for blocks of a width."""
        return self.dslash.laid_out(Packing(block=width) if width <= NARROW else WIDE)

    def compile_narrower(self, precision: str, widest: int) -> None:
        """Compile what batched CG shrinks to, from links as wide blocks read them and as narrow ones do."""
        for width in sorted({widest, min(widest, NARROW)}):
            A = NormalOperator(self.packed(width), 1.0)
            for narrower in (each for each in NARROWED if each < width):
                self.solve(A, "batched", precision, 0, narrower, FEWEST)

    def row(self, mass: float, method: str, precision: str, width: int, known: float | None) -> Row:
        """Blocks one after the other until the budget is used or all are done.

        known: iterations of batched CG in this precision, where they are known.
        """
        limit, joules, A = MOST, 0.0, NormalOperator(self.packed(width), mass)
        step = self.seconds_per_iteration(A, method, precision, width)
        if method == "batched" and known and known * step > self.budget:
            limit = ceil(self.budget / step)
        if method == "block":  # what its replacements take is compiled when they come
            self.solve(A, method, precision, 0, width, limit)
        solutions: list[Solution] = []
        fixed = method == "sequential" and not self.whole
        for start in range(0, SEQUENTIAL if fixed else RHS, width):
            before = self.meter()
            solutions.append(self.solve(A, method, precision, start, width, limit))
            joules += self.meter() - before
            spent = sum(solution.seconds for solution in solutions)
            if not fixed and spent * (1 + 1 / len(solutions)) > self.budget:
                break
        return self._scaled(solutions, joules, known if limit < MOST else None)

    def _scaled(self, solutions: list[Solution], joules: float, known: float | None) -> Row:
        """A row scaled to all right-hand sides, and from stopped solves to `known` iterations."""
        iterations = float(np.mean([solution.iterations for solution in solutions]))
        solved = len(solutions) * solutions[0].residual.size
        seconds = sum(solution.seconds for solution in solutions)
        scale = 1.0 if known is None else known / iterations
        matvecs = sum(solution.matvecs for solution in solutions)
        return Row(
            known or iterations,
            seconds * scale * RHS / solved,
            matvecs * 2 * FLOPS_PER_SITE * self.dslash.lattice.half_volume / seconds / 1e9,
            joules * scale / solved or None,
            max(float(solution.residual.max()) for solution in solutions) if known is None else None,
            f"{solved} rhs" + ("" if known is None else f", {iterations:.0f} iterations"),
        )

    def seconds_per_iteration(self, A: NormalOperator, method: str, precision: str, width: int) -> float:
        """Seconds of an iteration by a short solve, run twice: the first compiles."""
        solutions = [self.solve(A, method, precision, 0, width, TRIAL) for _ in range(2)]
        return solutions[1].seconds / solutions[1].iterations

    def solve(
        self, A: NormalOperator, method: str, precision: str, start: int, width: int, limit: int
    ) -> Solution:
        """One block. Raises MissedError if it misses the tolerance for another reason than the limit."""
        solver = SOLVERS[method](self.tolerance, limit, precision)
        b: Array = dilute(self.noise, self.partition, range(start, start + width))
        solution = solver.solve(A, b, on_failure="return")
        if solution.status is not SolveStatus.CONVERGED and (
            limit == MOST or solution.status is not SolveStatus.ITERATION_LIMIT
        ):
            raise MissedError(f"{solution.status.name.lower()} after {solution.iterations} iterations")
        return solution


def rows(only: Iterable[str]) -> Iterator[tuple[str, str, int]]:
    """Method, precision and width of each row that is asked for."""
    for precision in PRECISIONS:
        half = precision == "double-half"
        several = product(("batched",), HALF_WIDTHS) if half else product(("batched", "block"), WIDTHS)
        for method, width in [("sequential", 1), *several]:
            if any(f"{method}/{precision}/{width}/".startswith(f"{beginning}/") for beginning in only):
                yield method, precision, width


def main() -> None:
    """Measure the rows that the arguments ask for and print the tables."""
    problem = {"beta": 6.0, "sweeps": 30, "mass": [0.05, 0.02, 0.005], "tolerance": 2e-12}
    options = {**problem, "seconds": 8.0, "whole": False, "only": list(SOLVERS), "gpus": 1}
    arguments = arguments_of(__doc__, lattice=SMALL, machine="cpu", options=options)
    with devices_of(arguments):
        measure(arguments)


def measure(arguments: Namespace) -> None:
    """Make the configuration, compile, and print a table for each mass."""
    machine, lattice = arguments.machine, arguments.lattice
    chain: dict[str, Any] = {"beta": arguments.beta, "seed": SEED, "sweeps": arguments.sweeps}
    thin = quenched(lattice, LABEL, **chain, xp=machine.xp)
    mean = plaquette(as_numpy(thin), lattice).total
    print(f"{arguments.gpus} x {machine.name}; {lattice}, beta = {arguments.beta:g}, ", end="")
    print(f"{arguments.sweeps} sweeps, plaquette {mean:.5f}, tolerance {arguments.tolerance:g}.")
    study, wanted = Study(machine, staggered(thin, lattice), arguments), list(rows(arguments.only))
    for precision in PRECISIONS:
        if widths := [width for method, name, width in wanted if (method, name) == ("batched", precision)]:
            study.compile_narrower(precision, max(widths))
    for mass in arguments.mass:
        print(f"\n## m = {mass:g}")
        print_table(study, mass, wanted)


def print_table(study: Study, mass: float, wanted: list[tuple[str, str, int]]) -> None:
    """Print the rows of one mass."""
    table, finished = PrintedTable(*COLUMNS), dict[tuple[str, str], Row]()
    for method, precision, width in wanted:
        batched = finished.get(("batched", precision))
        try:
            row = study.row(mass, method, precision, width, batched.iterations if batched else None)
        except MissedError as missed:
            table.add(method, precision, width, *[None] * (len(COLUMNS) - 4), missed)
            continue
        if row.residual is not None:
            finished.setdefault((method, precision), row)
        sequential = finished.get(("sequential", precision))
        speedup = sequential and sequential.seconds / row.seconds
        times = row.iterations, row.seconds, speedup, row.gflops, row.joules
        table.add(method, precision, width, *times, row.residual, row.measured)


if __name__ == "__main__":
    main()
