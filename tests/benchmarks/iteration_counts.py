"""Iterations, time and residual of batched CG and block CGrQ for N right-hand sides: a Markdown table a mass.

    python tests/benchmarks/iteration_counts.py [--backend cuda] [--lattice 8 8 8 16] [--beta 5.7]
    [--mass m ...] [--rhs N ...] [--vectors K ...] [--only batched block/double ...] [--seconds 2]

HISQ links of one quenched configuration, the normal operator on the even sites, Z2 noise; in double precision
and in single with reliable updates in double (double-single); undeflated (K = 0) and deflated by the lowest K
eigenvectors, made by block Lanczos and kept in double. Each cell: iterations (seconds of the whole block;
largest residual, recomputed).

Kernels are compiled in a short solve first. The fastest of as many solves counts as fit into `--seconds`, of
one if it takes longer. Batched CG takes about the same iterations whatever N: where one width has been
solved, a wider block that would take longer than `--seconds` is stopped then, its time scaled to those
iterations and written after "~", without a residual. `--only` takes columns by their beginnings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from math import ceil
from typing import Any

from script import SMALL, PrintedTable, arguments_of, quenched, staggered
from stages.lqcd.dirac.staggered import NormalOperator, SquaredDslash, StaggeredDslash
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import EVEN
from stages.lqcd.noise.vectors import noise_vectors
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.deflation import DeflatedSolver, StaggeredSpace
from stages.lqcd.solvers.krylov import KrylovSolver
from stages.lqcd.solvers.solution import Solution, SolveStatus
from stages.lqcd.solvers.space import Space
from workflows.benchmarks.machine import Machine

SEED, LABEL = 271, "solver table"
METHODS: dict[str, type[KrylovSolver]] = {"batched": BatchedCG, "block": BlockCGrQ}
PRECISIONS = ("double", "double-single")
TRIAL, MOST = 20, 100_000
"""Iterations of the solve that compiles, and the limit of the others."""


@dataclass(frozen=True)
class Cell:
    """Method, precision, mass and deflating vectors of a cell of the table."""

    method: str
    precision: str
    mass: float
    vectors: int


@dataclass
class Study:
    """The operator's links, the eigenvectors and the limits that all cells share.

    whole: iterations of batched CG, by cell, where they are known.
    """

    machine: Machine
    dslash: StaggeredDslash
    space: StaggeredSpace | None
    tolerance: float
    seconds: float
    whole: dict[Cell, int] = field(default_factory=dict)

    def text(self, cell: Cell, rhs: int) -> str:
        """Iterations (seconds; residual) of a block of so many right-hand sides, or how the solve failed."""
        b = noise_vectors(self.dslash.lattice, EVEN, LABEL, SEED, range(rhs), xp=self.machine.xp)
        self._solve(cell, b, 2)
        step = self._solve(cell, b, TRIAL).seconds / TRIAL
        whole = self.whole.get(cell)
        if whole and whole * step > self.seconds:
            run = self._solve(cell, b, max(TRIAL, ceil(self.seconds / step)))
            return f"{whole} (~{run.seconds * whole / run.iterations:.3g} s; -)"
        best = self._solve(cell, b, MOST)
        spent = best.seconds
        while spent + best.seconds <= self.seconds:
            run = self._solve(cell, b, MOST)
            spent, best = spent + run.seconds, min(best, run, key=lambda solution: solution.seconds)
        if best.status is not SolveStatus.CONVERGED:
            return f"{best.status.name.lower()} after {best.iterations}"
        if cell.method == "batched":
            self.whole.setdefault(cell, best.iterations)
        return f"{best.iterations} ({best.seconds:.3g} s; {best.residual.max():.1e})"

    def _solve(self, cell: Cell, b: Array, limit: int) -> Solution:
        solver: Any = METHODS[cell.method](self.tolerance, limit, cell.precision)
        if self.space is not None and cell.vectors:
            space = self.space.lowest(cell.vectors)
            solver = DeflatedSolver(solver, space)
        return solver.solve(NormalOperator(self.dslash, cell.mass), b, on_failure="return")


def main() -> None:
    """Print the tables of the operator that the arguments name."""
    problem = {"beta": 5.7, "sweeps": 40, "mass": [0.05, 0.01, 0.002], "tolerance": 1e-10}
    deflation = {"vectors": [0, 64], "block": 16, "lanczos": 1e-10}
    parts = {"rhs": [1, 2, 4, 8, 16, 32, 48, 64], "only": list(METHODS), "seconds": 2.0}
    arguments = arguments_of(__doc__, lattice=SMALL, machine="cpu", options={**problem, **deflation, **parts})
    machine, lattice = arguments.machine, arguments.lattice
    chain: dict[str, Any] = {"beta": arguments.beta, "seed": SEED, "sweeps": arguments.sweeps}
    dslash = staggered(quenched(lattice, LABEL, **chain, xp=machine.xp), lattice)
    print(f"{machine.name}; {lattice}, beta = {arguments.beta:g}, {arguments.sweeps} sweeps, ", end="")
    print(f"tolerance {arguments.tolerance:g}.", flush=True)
    space = None
    if most := max(arguments.vectors):
        B = SquaredDslash(dslash)
        pairs = BlockLanczos(most, arguments.block, arguments.lanczos).solve(B)
        print(f"{most} eigenpairs, {pairs.values[0]:.3g} to {pairs.values[-1]:.3g}, ", end="")
        print(f"residual {pairs.residuals.max():.1e}: {pairs.seconds:.1f} s.", flush=True)
        space = StaggeredSpace(dslash, Space.measured(B, pairs.vectors))
        del pairs
    study = Study(machine, dslash, space, arguments.tolerance, arguments.seconds)
    columns = [
        (method, precision)
        for method, precision in product(METHODS, PRECISIONS)
        if any(f"{method}/{precision}/".startswith(f"{beginning}/") for beginning in arguments.only)
    ]
    for mass in arguments.mass:
        print(f"\n## m = {mass:g}")
        table = PrintedTable("vectors", "N", *(f"{method}, {precision}" for method, precision in columns))
        for vectors, rhs in product(arguments.vectors, arguments.rhs):
            table.add(vectors, rhs, *(study.text(Cell(*column, mass, vectors), rhs) for column in columns))


if __name__ == "__main__":
    main()
