"""An iteration of batched CG and of block CGrQ: all from one application of the operator to the next.

A short solve and a longer one on random links, which no solver finishes, are timed as a whole; an iteration
is their difference over that of their iterations. Reliable updates of the longer solve are in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.krylov import KrylovSolver
from workflows.benchmarks.machine import Machine, random_field
from workflows.benchmarks.speed import Bench, SiteCost, Speed, streaming
from workflows.benchmarks.staggered import normal_cost, packed_for, random_operator

SHORT = 5
FEWEST, MOST, SECONDS = 15, 100, 0.5
"""How many iterations more the longer solve has: as many as take these seconds, within limits."""

REPEATS = 3
TOLERANCE = 1e-13
PRECISIONS = {"double": ("double", None), "single": ("double-single", "single")}
"""The solver's name for a precision of its iteration, and what it calls the inner precision."""


def speeds(bench: Bench) -> Iterator[Speed]:
    """Both solvers for every precision and width; residuals are always in double."""
    unpacked = random_operator(bench.machine, bench.lattice)
    for precision, dtype, rhs in bench.blocks:
        operator = packed_for(unpacked, rhs)
        b = random_field(bench.machine, (*operator.shape, rhs), np.complex128)
        name, inner = PRECISIONS[precision]
        for method, cost in METHODS:
            solver = partial(method, TOLERANCE, inner=inner)
            seconds, joules = iteration(bench.machine, solver, operator, b)
            names = {"kernel": method.__name__, "precision": name, "unit": "iteration"}
            sites, line = bench.lattice.half_volume, cost(rhs, dtype)
            yield bench.speed(seconds, joules, line, sites, family="solver", rhs=rhs, **names)


def batched_cost(rhs: int, dtype: np.dtype) -> SiteCost:
    """p^H A p with the operator, the update of x and p (5 fields), that of r with |r|^2 (3)."""
    return normal_cost(rhs, dtype) + streaming(12 + 24 + 24, 8, dtype)


def block_cost(rhs: int, dtype: np.dtype) -> SiteCost:
    """Gram matrices of P, A P (2) and of Q (1), updates of X (3) and Q (3), Q S^-1 (2), Q + P S^H (3).

    Gram matrices are Hermitian and S is triangular: half the arithmetic of a full matrix.
    """
    return normal_cost(rhs, dtype) + streaming((4 * 0.5 + 2) * 24 * rhs, 14, dtype)


METHODS: tuple[tuple[type[KrylovSolver], Callable[[int, np.dtype], SiteCost]], ...] = (
    (BatchedCG, batched_cost),
    (BlockCGrQ, block_cost),
)


def iteration(
    machine: Machine, solver: Callable[..., KrylovSolver], A: LinearOperator, b: Array
) -> tuple[float, float | None]:
    """Seconds and joules of one iteration."""
    counts: dict[int, int] = {}

    def solve(limit: int) -> None:
        counts[limit] = solver(max_iterations=limit).solve(A, b, on_failure="return").iterations

    def timed(limit: int) -> float:
        return min(machine.wall_seconds(partial(solve, limit)) for _ in range(REPEATS))

    solve(SHORT)
    short = timed(SHORT)
    limit = SHORT + max(FEWEST, min(MOST, int(SECONDS / short * SHORT)))
    long = timed(limit)
    iterations, passed = counts[limit] - counts[SHORT], long - short
    if iterations <= 0 or passed <= 0:  # a lattice so small that a solve is over, or lost in noise
        iterations, passed = counts[limit], long
    seconds = passed / iterations
    joules = machine.joules(partial(solve, limit), long)
    return seconds, joules and joules * seconds / long
