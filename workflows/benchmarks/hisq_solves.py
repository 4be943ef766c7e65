"""Conjugate gradients with HISQ links on one configuration: time to solution and of an iteration.

    python -m workflows.benchmarks.hisq_solves [--backend cuda]
    [--gauge FILE [--tile 2 2 2 4] | --lattice 8 8 8 8 --beta 6.0] [--mass 0.01] [--rhs 1 16]
    [--only single double double-single] [--repeats 9]

HISQ links, antiperiodic in t, of the configuration of a file, repeated `tile` times in each direction, or of
a quenched one by heat bath; the normal operator on the even sites, random normal sources, batched CG to a
relative residual of 1e-10, in single precision of 1e-6. A first solve compiles the kernels. Columns:
precision; right-hand sides; iterations; milliseconds per right-hand side, the median of the repeats, the
fastest and the slowest; nanoseconds per even site, right-hand side and iteration of the median and of the
fastest; the largest relative residual, computed anew in double precision.
"""

from __future__ import annotations

import argparse
from statistics import median

import numpy as np

from stages.lqcd.dirac.staggered import NormalOperator
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.lattice.plaquette import plaquette
from stages.lqcd.solvers.cg import BatchedCG
from workflows.benchmarks.multigrid_solves import configuration
from workflows.benchmarks.script import PrintedTable, arguments_of, staggered

SEED = 577
TOLERANCES = {"single": 1e-6, "double": 1e-10, "double-single": 1e-10}
COLUMNS = ("precision", "N", "iterations", "ms", "from", "to", "ns", "fastest", "residual")


def main() -> None:
    """Print the table."""
    arguments = parsed()
    thin, lattice = configuration(arguments)
    mean = plaquette(as_numpy(thin), lattice).total
    print(f"{arguments.machine.name}; {lattice}, plaquette {mean:.5f}, m = {arguments.mass:g}")
    A = NormalOperator(staggered(thin, lattice), arguments.mass)
    table = PrintedTable(*COLUMNS)
    for precision in arguments.only:
        for rhs in arguments.rhs:
            table.add(precision, rhs, *solves(arguments, A, precision, rhs))


def solves(arguments: argparse.Namespace, A: NormalOperator, precision: str, rhs: int) -> list[object]:
    """Iterations, times and residual of some equal solves after one that compiles."""
    operator = A.astype(np.complex64) if precision == "single" else A
    draw, shape = arguments.machine.xp.random.default_rng(SEED).standard_normal, (*A.shape, rhs)
    b = (draw(shape) + 1j * draw(shape)).astype(operator.dtype)
    solver = BatchedCG(TOLERANCES[precision], inner="single" if precision == "double-single" else None)
    solution = solver.solve(operator, b)
    times = [
        arguments.machine.wall_seconds(lambda: solver.solve(operator, b)) for _ in range(arguments.repeats)
    ]
    wide = b.astype(A.dtype)
    remainder = as_numpy(wide - A.apply(solution.x.astype(A.dtype))).reshape(-1, rhs)
    norms = np.linalg.norm(as_numpy(wide).reshape(-1, rhs), axis=0)
    residual = float((np.linalg.norm(remainder, axis=0) / norms).max())
    milliseconds = [1e3 * seconds / rhs for seconds in (median(times), min(times), max(times))]
    each = 1e6 / solution.iterations / A.shape[0]
    nanoseconds = [each * time for time in milliseconds[:2]]
    return [solution.iterations, *milliseconds, *nanoseconds, residual]


def parsed() -> argparse.Namespace:
    field = {"gauge": str, "tile": [1], "beta": 6.0, "sweeps": 50, "mass": 0.01}
    options = {**field, "rhs": [1, 16], "only": list(TOLERANCES), "repeats": 9}
    return arguments_of(__doc__, lattice=(8, 8, 8, 8), machine="cpu", options=options)


if __name__ == "__main__":
    main()
