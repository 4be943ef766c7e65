"""Time to solution of 192 right-hand sides: sequential CG, batched CG, block CGrQ; a Markdown table.

    python -m workflows.benchmarks.time_to_solution --backend cuda --lattice 32 32 32 48 --mass 0.01

The sources are the even subsets (displacement 2, eight of them) of 24 Z2 noise vectors on one quenched
configuration with HISQ links. A row solves one block or more, for about `--seconds`, and is scaled to 192;
the last column says what was measured. Batched CG takes the same iterations whatever the width, so that a
wide block that would take longer is stopped and scaled to the iterations of the first finished width.

`--only` takes rows by their beginnings, such as `batched`, `block/double-single`, `block/double/16`. With
`--json` the rows are kept in a file of this problem; those that it has already are printed again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.worker.energy import energy_meter
from stages.lqcd.dirac.staggered import NormalOperator
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.lattice.geometry import EVEN, Lattice
from stages.lqcd.lattice.plaquette import plaquette
from stages.lqcd.noise.dilution import Dilution, dilute
from stages.lqcd.noise.vectors import noise_vectors
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.solution import Solution, SolveStatus
from workflows.benchmarks.dslash import FLOPS_PER_SITE
from workflows.benchmarks.machine import Machine, machine_of
from workflows.benchmarks.script import head, options, quenched, row, staggered

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
INNER = {"double": None, "double-single": "single"}
SEED, LABEL = 1729, "time to solution"
TRIAL, MOST = 20, 50_000
"""Iterations of the untimed solve in front of each row, and the limit of a timed one."""


@dataclass(frozen=True)
class Row:
    """One method: seconds for all right-hand sides, joules per source, residual the largest.

    iterations: mean over the blocks. gflops: of the operator alone, all columns of all blocks counted.
    measured: what the row was scaled from. stopped: whether its solve was stopped early.
    """

    name: str
    iterations: float
    seconds: float
    gflops: float
    joules: float | None
    residual: float | None
    measured: str
    stopped: bool

    def cells(self, sequential: float | None) -> list[str]:
        """The cells of the table; sequential: seconds of that method in the same precision."""
        ratio = "-" if sequential is None else f"{sequential / self.seconds:.1f}"
        energy = "-" if self.joules is None else f"{self.joules:.3g}"
        residual = "-" if self.residual is None else f"{self.residual:.1e}"
        speed = [f"{self.iterations:.0f}", f"{self.seconds:.3g}", ratio, f"{self.gflops:.0f}", energy]
        return [*self.name.split("/"), *speed, residual, self.measured]


COLUMNS = (
    *("method", "precision", "N", "iterations", "s for 192", "speed-up", "GFLOP/s", "J/source"),
    *("residual", "measured"),
)


class Study:
    """One operator and its sources."""

    def __init__(self, machine: Machine, operator: NormalOperator, tolerance: float, budget: float) -> None:
        self.machine, self.operator, self.tolerance, self.budget = machine, operator, tolerance, budget
        self.meter = energy_meter(machine.backend) or (lambda: 0.0)
        lattice = operator.dslash.lattice
        self.noise = noise_vectors(lattice, EVEN, LABEL, SEED, range(VECTORS), xp=machine.xp)
        self.partition = Dilution.parse({"displacement": 2}).partition(lattice, EVEN)

    def row(self, name: str, batched_iterations: float | None) -> Row:
        """Blocks one after the other until the budget is used or all are done.

        batched_iterations: what batched CG takes in this precision, where that is known.
        """
        method, precision, text = name.split("/")
        width, limit, joules = int(text), MOST, 0.0
        step = self.seconds_per_iteration(method, precision, width)
        if method == "batched" and batched_iterations and batched_iterations * step > self.budget:
            limit = ceil(self.budget / step)
        solutions: list[Solution] = []
        for start in range(0, SEQUENTIAL if method == "sequential" else RHS, width):
            before = self.meter()
            solutions.append(self.solve(method, precision, start, width, limit))
            joules += self.meter() - before
            spent = sum(solution.seconds for solution in solutions)
            if method != "sequential" and spent * (1 + 1 / len(solutions)) > self.budget:
                break
        if limit < MOST:
            return self._summary(name, solutions, joules, batched_iterations)
        return self._summary(name, solutions, joules, None)

    def _summary(self, name: str, solutions: list[Solution], joules: float, whole: float | None) -> Row:
        """Scaled to all right-hand sides, and from stopped solves to `whole` iterations."""
        iterations = float(np.mean([solution.iterations for solution in solutions]))
        solved = len(solutions) * solutions[0].residual.size
        seconds = sum(solution.seconds for solution in solutions)
        scale = 1.0 if whole is None else whole / iterations
        stopped = "" if whole is None else f", {iterations:.0f} iterations"
        matvecs = sum(solution.matvecs for solution in solutions)
        return Row(
            name,
            whole or iterations,
            seconds * scale * RHS / solved,
            matvecs * 2 * FLOPS_PER_SITE * self.operator.shape[0] / seconds / 1e9,
            joules * scale / solved or None,
            max(float(solution.residual.max()) for solution in solutions) if whole is None else None,
            f"{solved} rhs{stopped}",
            whole is not None,
        )

    def seconds_per_iteration(self, method: str, precision: str, width: int, trial: int = TRIAL) -> float:
        """Seconds of an iteration by a short solve, run twice: the first compiles."""
        solutions = [self.solve(method, precision, 0, width, trial) for _ in range(2)]
        return solutions[1].seconds / solutions[1].iterations

    def solve(self, method: str, precision: str, start: int, width: int, limit: int) -> Solution:
        """One block. Ends the program if it misses the tolerance for another reason than the limit."""
        solver = SOLVERS[method](self.tolerance, limit, INNER[precision])
        b: Array = dilute(self.noise, self.partition, range(start, start + width))
        solution = solver.solve(self.operator, b, on_failure="return")
        if solution.status is not SolveStatus.CONVERGED and (
            limit == MOST or solution.status is not SolveStatus.ITERATION_LIMIT
        ):
            raise SystemExit(f"{method}/{precision}/{width}: {solution.status.value}")
        return solution


def names(only: Iterable[str]) -> Iterator[str]:
    """Method, precision and width of each row that is asked for."""
    for precision in INNER:
        all_rows = [("sequential", 1), *product(("batched", "block"), WIDTHS)]
        for method, width in all_rows:
            name = f"{method}/{precision}/{width}"
            if any(f"{name}/".startswith(f"{beginning}/") for beginning in only):
                yield name


def operator(arguments: argparse.Namespace, machine: Machine) -> tuple[NormalOperator, str]:
    """The operator that the arguments ask for, and a sentence on it."""
    lattice = Lattice(tuple(arguments.lattice))
    chain: dict[str, Any] = {"beta": arguments.beta, "seed": SEED, "sweeps": arguments.sweeps}
    thin = quenched(lattice, LABEL, **chain, xp=machine.xp)
    mean = plaquette(as_numpy(thin), lattice).total
    text = (
        f"{machine.name}; {lattice}, beta = {arguments.beta:g}, {arguments.sweeps} sweeps, "
        f"plaquette {mean:.5f}, m = {arguments.mass:g}, tolerance {arguments.tolerance:g}."
    )
    return NormalOperator(staggered(thin, lattice), arguments.mass), text


def main() -> None:
    """Measure the rows that the arguments ask for and print the table."""
    arguments = parsed()
    machine = machine_of(arguments.backend)
    A, text = operator(arguments, machine)
    rows = stored_rows(arguments.json, text)
    study = Study(machine, A, arguments.tolerance, arguments.seconds)
    wanted = list(names(arguments.only))
    missing = [name for name in wanted if name not in {row.name for row in rows}]
    for precision in dict.fromkeys(name.split("/")[1] for name in missing if name.startswith("batched")):
        for width in NARROW:
            study.seconds_per_iteration("batched", precision, width, trial=3)
    print(f"{text}\n\n{head(*COLUMNS)}", flush=True)
    for name in wanted:
        if name in missing:
            rows.append(study.row(name, known(rows, "batched", name, "iterations")))
        line = next(line for line in rows if line.name == name)
        print(row(*line.cells(known(rows, "sequential", name, "seconds"))), flush=True)
        if arguments.json:
            content = {"problem": text, "rows": [asdict(row) for row in rows]}
            arguments.json.write_text(json.dumps(content, indent=2) + "\n")


def known(rows: Iterable[Row], method: str, name: str, field: str) -> float | None:
    """A figure of the first finished row of a method in the precision of `name`."""
    beginning = f"{method}/{name.split('/')[1]}/"
    return next((getattr(r, field) for r in rows if r.name.startswith(beginning) and not r.stopped), None)


def stored_rows(file: Path | None, problem: str) -> list[Row]:
    """The rows in a file. Ends the program if they are of another problem."""
    if file is None or not file.exists():
        return []
    content = json.loads(file.read_text())
    if content["problem"] != problem:
        raise SystemExit(f"{file} is of another problem: {content['problem']}\nthis one: {problem}")
    return [Row(**row) for row in content["rows"]]


def parsed() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--beta", type=float, default=6.0, help="of the Wilson action (default 6)")
    parser.add_argument("--sweeps", type=int, default=30, help="heat-bath sweeps from a hot start")
    parser.add_argument("--mass", type=float, default=0.01, help="m of M = 2 m + D (default 0.01)")
    parser.add_argument("--tolerance", type=float, default=2e-12)
    parser.add_argument("--seconds", type=float, default=8.0, help="budget of a row (default 8)")
    parser.add_argument("--only", nargs="+", default=["sequential", "batched", "block"], metavar="ROW")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep rows here, and go on from there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
