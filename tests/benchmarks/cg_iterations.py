"""Time iterations of batched CG and block CGrQ, whole and in parts, and the reductions at N = 1.

    python tests/benchmarks/cg_iterations.py [--backend cpu] [--lattice X Y Z T] [--rhs N ...]
    [--parts batched reductions block]

The normal operator of HISQ quarks on random links. Tables, in the order of `--parts`:

batched     an iteration of batched CG: the difference of a long and a short solve, divided by that of their
            iterations; the residual is replaced in neither. Beside it: the same without graph replay, the
            operator with p^H A p and the two vector updates, each from a graph of many calls. ps are per
            (even site, rhs)
reductions  GPU time of a call in a graph of many, time until the result of a call is on the host, and time of
            the host in a call
block       seconds of 100 iterations of block CGrQ, as in Fig. 4 of arXiv:1710.09745. "block dslash" is the
            solver: the shorter of two solves that are stopped after 100 iterations. "block BLAS" is that time
            with A at N = 1, N times, in place of A at N. "no block" is A at N = 1, N times, and the linear
            algebra of algorithm 3 on single right-hand sides: N (N + 1) scalar products and 3 N^2 + N updates
            y += a x, as Gram matrices are Hermitian and two of the four small matrices triangular. These two
            columns are composed of parts, each measured in a graph of many calls in the iteration's precision
"""

from __future__ import annotations

from functools import partial
from statistics import median
from unittest.mock import patch

import numpy as np

from script import LARGE, PrintedTable, arguments_of, host_seconds
from stages.lqcd.dirac.operator import LinearOperator, whole_storage
from stages.lqcd.dirac.staggered import NormalOperator
from stages.lqcd.kernels import block_blas, cg_update, stream
from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from workflows.benchmarks.block_blas import slow_coefficients
from workflows.benchmarks.machine import Machine, Work, random_field
from workflows.benchmarks.solver_iteration import INNER, iteration
from workflows.benchmarks.speed import DTYPES
from workflows.benchmarks.staggered import packed_for, random_operator

TOLERANCE = 1e-15
SOLVER = partial(BatchedCG, TOLERANCE)
CALLS, ITERATIONS = 20, 100
COLUMNS = (
    *("precision", "N", "iteration ps", "A", "advance", "residual"),
    *("parts us", "whole us", "no graph us"),
)
BLOCK_COLUMNS = (
    *("precision", "N", "no block s", "block BLAS s", "block dslash s", "gain by BLAS", "by dslash"),
    *("iterations", "A us", "A at N = 1, us", "update us", "scalar product us"),
)


def main() -> None:
    """Print the tables that the arguments ask for."""
    options = {"rhs": [1, 8, 16, 32], "parts": list(TABLES)}
    arguments = arguments_of(__doc__, lattice=LARGE, machine="cuda", options=options)
    machine, lattice = arguments.machine, arguments.lattice
    print(f"{machine.name}; {lattice}")
    double = random_operator(machine, lattice)
    for part in arguments.parts:
        TABLES[part](machine, double, arguments.rhs)


def batched(machine: Machine, double: NormalOperator, widths: list[int]) -> None:
    """Print an iteration of batched CG, whole and in parts."""
    table, lattice = PrintedTable(*COLUMNS), double.dslash.lattice
    for precision, dtype in DTYPES.items():
        A = double.astype(dtype)
        for n in widths:
            b = random_field(machine, (*A.shape, n), dtype)
            whole = iteration(machine, SOLVER, A, b)[0]
            with patch.multiple(stream, repeated=_as_it_is, recorded=_as_it_is):
                plain = iteration(machine, SOLVER, A, b)[0]
            parts = parts_seconds(machine, A, b)
            unit = 1e12 / (lattice.half_volume * n)
            picoseconds = (unit * seconds for seconds in (whole, *parts))
            table.add(precision, n, *picoseconds, *(1e6 * seconds for seconds in (sum(parts), whole, plain)))


def reductions(machine: Machine, double: NormalOperator, widths: list[int]) -> None:
    """Print the times of sums of one right-hand side."""
    table = PrintedTable("reduction, N = 1", "precision", "GPU us", "until on the host us", "call us")
    for precision, dtype in DTYPES.items():
        x, y = (random_field(machine, (*double.shape, 1), dtype) for _ in range(2))
        c = slow_coefficients(x)
        works = {
            "norms2": partial(block_blas.norms2, x),
            "dots": partial(block_blas.dots, x, y),
            "cg_residual": partial(residual_norms2, x, y, c),
        }
        for name, work in works.items():
            gpu = replayed_seconds(machine, work)
            waited = median(machine.wall_seconds(lambda: as_numpy(work())) for _ in range(51))  # noqa: B023
            times = gpu, waited, host_seconds(machine, work, CALLS)
            table.add(name, precision, *(1e6 * seconds for seconds in times))


def block(machine: Machine, double: NormalOperator, widths: list[int]) -> None:
    """Print seconds of 100 iterations: one right-hand side at a time, block BLAS, and A on blocks, too."""
    table = PrintedTable(*BLOCK_COLUMNS)
    for precision, dtype in DTYPES.items():
        single = operator_seconds(machine, packed_for(double, 1).astype(dtype), 1)
        update, scalar = single_seconds(machine, double.shape, dtype)
        for n in widths:
            A = packed_for(double, n)
            b = random_field(machine, (*A.shape, n), np.complex128)
            solver = BlockCGrQ(TOLERANCE, ITERATIONS, INNER[precision])
            _, *runs = (solver.solve(A, b, on_failure="return") for _ in range(3))
            run = min(runs, key=lambda each: each.seconds)
            together = operator_seconds(machine, A.astype(dtype), n)
            blas = run.seconds + ITERATIONS * (n * single - together)
            none = ITERATIONS * (n * single + n * (n + 1) * scalar + (3 * n + 1) * n * update)
            gains = none / blas, blas / run.seconds
            times = (1e6 * seconds for seconds in (together, single, update, scalar))
            table.add(INNER[precision], n, none, blas, run.seconds, *gains, run.iterations, *times)


TABLES = {"batched": batched, "reductions": reductions, "block": block}


def operator_seconds(machine: Machine, A: LinearOperator, n: int) -> float:
    """Time of a product with blocks of n."""
    x = random_field(machine, (*A.shape, n), A.dtype)
    return replayed_seconds(machine, whole_storage(A).product(x, machine.xp.empty_like(x)))


def single_seconds(machine: Machine, shape: tuple[int, ...], dtype: np.dtype) -> tuple[float, float]:
    """Times of an update y += a x and of a scalar product of single right-hand sides."""
    x, y = (random_field(machine, (*shape, 1), dtype) for _ in range(2))
    a = machine.xp.full((1, 1), 1e-3, np.complex128)
    works = partial(block_blas.update, y, x, a), partial(block_blas.dots, x, y)
    update, scalar = (replayed_seconds(machine, work) for work in works)
    return update, scalar


def parts_seconds(machine: Machine, A: NormalOperator, b: Array) -> list[float]:
    """Seconds of the operator with p^H A p, of the update of x and p, and of that of the residual."""
    x, p, r = b.copy(), b.copy(), b.copy()
    c = slow_coefficients(b)
    apply = whole_storage(A).product(p, x, c.pap)
    advance, residual = partial(cg_update.cg_advance, x, p, r, c), partial(cg_update.cg_residual, r, x, c)
    return [replayed_seconds(machine, part) for part in (apply, advance, residual)]


def residual_norms2(r: Array, ap: Array, c: CGCoefficients) -> Array:
    """The residual's update with its norms."""
    cg_update.cg_residual(r, ap, c)
    return c.r2


def replayed_seconds(machine: Machine, work: Work) -> float:
    """Time of a call in a graph of many."""

    def calls() -> None:
        for _ in range(CALLS):
            work()

    many = stream.repeated(calls, machine.xp)
    many()
    return machine.seconds(many) / CALLS


def _as_it_is(step: Work, xp: object) -> Work:
    return step


if __name__ == "__main__":
    main()
