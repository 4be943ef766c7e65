"""An iteration of batched CG, block CGrQ and BiCGstab: all from one application of the operator to the next.

A short solve and a longer one on random links are timed as a whole; an iteration is their difference over
that of their iterations. Reliable updates of the longer solve are in it: BiCGstab, which ends after a dozen
iterations, has one in every second iteration in mixed precision, many more than on links of an ensemble.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import NamedTuple

import numpy as np

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.link_forms import FEW
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.krylov import KrylovSolver
from workflows.benchmarks import staggered, wilson
from workflows.benchmarks.machine import Machine, random_field
from workflows.benchmarks.speed import DTYPES, Bench, SiteCost, Speed, streaming
from workflows.benchmarks.staggered import normal_cost

SHORT = 5
FEWEST, MOST, SECONDS = 15, 100, 0.5
"""How many iterations more the longer solve has: as many as take these seconds, within limits."""

REPEATS = 3
TOLERANCE = 1e-13
INNER = {"double": "double", "single": "double-single", "half": "double-half"}
"""What solvers call the precision of their iteration; residuals are in double."""


def speeds(bench: Bench) -> Iterator[Speed]:
    """All solvers for every width and precision that they have.

    Half precision is measured on devices, where the CPU converts, and where it is not single precision.
    """
    hisq = staggered.random_operator(bench.machine, bench.lattice)
    quarks: dict[str, Callable[[int], LinearOperator]] = {
        "hisq": partial(staggered.packed_for, hisq),
        "wilson": partial(wilson.schur_for, wilson.random_links(bench)),
    }
    device = bench.machine.backend == "cuda"
    for precision, rhs in ((precision, rhs) for precision in bench.precisions for rhs in bench.widths):
        for line in METHODS:
            if precision == "half" and not (device and rhs <= line.half):
                continue
            operator = quarks[line.quarks](rhs)
            b = random_field(bench.machine, (*operator.shape, rhs), np.complex128)
            solver = partial(line.method, TOLERANCE, precision=INNER[precision])
            seconds, joules = iteration(bench.machine, solver, operator, b)
            name = precision if precision == "double" else f"double-{precision}"
            names = {"kernel": line.method.__name__, "precision": name, "unit": "iteration"}
            cost, sites = line.cost(rhs, DTYPES.get(precision, DTYPES["single"])), bench.lattice.half_volume
            yield bench.speed(seconds, joules, cost, sites, family="solver", rhs=rhs, **names)


def batched_cost(rhs: int, dtype: np.dtype) -> SiteCost:
    """p^H A p with the operator, the update of x and p (5 fields), that of r with |r|^2 (3)."""
    return normal_cost(rhs, dtype) + streaming(12 + 24 + 24, 8, dtype)


def block_cost(rhs: int, dtype: np.dtype) -> SiteCost:
    """Gram matrices of P, A P (2) and of Q (1), updates of X (3) and Q (3), Q S^-1 (2), Q + P S^H (3).

    Gram matrices are Hermitian and S is triangular: half the arithmetic of a full matrix.
    """
    return normal_cost(rhs, dtype) + streaming((4 * 0.5 + 2) * 24 * rhs, 14, dtype)


def stabilised_cost(rhs: int, dtype: np.dtype) -> SiteCost:
    """Two Schur complements of spinors, and the updates: alpha (4 fields), omega (3), x, r and p (8)."""
    spinors = 4 * streaming(12 * 8, 15, dtype)
    return 2 * wilson.schur_cost(rhs, dtype.itemsize) + spinors


class Measured(NamedTuple):
    """A solver that is measured: its quarks, the cost of an iteration, and the widest block in half."""

    method: type[KrylovSolver]
    quarks: str
    cost: Callable[[int, np.dtype], SiteCost]
    half: float


METHODS = (
    Measured(BatchedCG, "hisq", batched_cost, half=FEW),
    Measured(BlockCGrQ, "hisq", block_cost, half=0),
    Measured(BiCGstab, "wilson", stabilised_cost, half=inf),
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
