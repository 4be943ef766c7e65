"""Time iterations of batched CG on the device at hand, whole and in parts, and the reductions at N = 1.

    python tests/benchmarks/cg_iterations.py [--lattice X Y Z T] [--rhs N ...]

An iteration is the difference of a long and a short solve on random links, divided by that of their
iterations; the residual is replaced in neither. Beside it: the same without graph replay, the operator with
p^H A p and the two vector updates, each from a graph of many calls. ps are per (even site, rhs). Reductions:
GPU time of a call in a graph of many, time until the result of a call is on the host, and time of the host in
a call.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from unittest.mock import patch

import cupy

from script import LARGE, PrintedTable, arguments_of, host_seconds
from stages.lqcd.dirac.operator import whole_storage
from stages.lqcd.dirac.staggered import NormalOperator
from stages.lqcd.kernels import block_blas, cg_update, stream
from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.solvers.cg import BatchedCG
from workflows.benchmarks.block_blas import slow_coefficients
from workflows.benchmarks.machine import Device, Work, random_field
from workflows.benchmarks.solver_iteration import iteration
from workflows.benchmarks.speed import DTYPES
from workflows.benchmarks.staggered import random_operator

SOLVER = partial(BatchedCG, 1e-15)
CALLS = 20
COLUMNS = (
    *("precision", "N", "iteration ps", "A", "advance", "residual"),
    *("parts us", "whole us", "no graph us"),
)


def main() -> None:
    """Print both tables for the device at hand."""
    arguments = arguments_of(__doc__, lattice=LARGE, options={"rhs": [1, 8, 16, 32]})
    device, lattice = Device(), arguments.lattice
    print(f"{device.name}; {lattice}")
    table = PrintedTable(*COLUMNS)
    double = random_operator(device, lattice)
    for precision, dtype in DTYPES.items():
        A = double.astype(dtype)
        for n in arguments.rhs:
            b = random_field(device, (*A.shape, n), dtype)
            whole = iteration(device, SOLVER, A, b)[0]
            with patch.object(stream, "repeated", lambda step, xp: step):
                plain = iteration(device, SOLVER, A, b)[0]
            parts = parts_seconds(device, A, b)
            unit = 1e12 / (lattice.half_volume * n)
            picoseconds = (unit * seconds for seconds in (whole, *parts))
            table.add(precision, n, *picoseconds, *(1e6 * seconds for seconds in (sum(parts), whole, plain)))
    reductions = PrintedTable("reduction, N = 1", "precision", "GPU us", "until on the host us", "call us")
    for precision, dtype in DTYPES.items():
        x, y = (random_field(device, (lattice.half_volume, 3, 1), dtype) for _ in range(2))
        c = slow_coefficients(x)
        works = {
            "norms2": partial(block_blas.norms2, x),
            "dots": partial(block_blas.dots, x, y),
            "cg_residual": partial(residual_norms2, x, y, c),
        }
        for name, work in works.items():
            gpu = replayed_seconds(device, work)
            waited = median(device.wall_seconds(lambda: as_numpy(work())) for _ in range(51))  # noqa: B023
            times = gpu, waited, host_seconds(device, work, CALLS)
            reductions.add(name, precision, *(1e6 * seconds for seconds in times))


def parts_seconds(device: Device, A: NormalOperator, b: Array) -> list[float]:
    """Seconds of the operator with p^H A p, of the update of x and p, and of that of the residual."""
    x, p, r = b.copy(), b.copy(), b.copy()
    c = slow_coefficients(b)
    apply = whole_storage(A).product(p, x, c.pap)
    advance, residual = partial(cg_update.cg_advance, x, p, r, c), partial(cg_update.cg_residual, r, x, c)
    return [replayed_seconds(device, part) for part in (apply, advance, residual)]


def residual_norms2(r: Array, ap: Array, c: CGCoefficients) -> Array:
    """The residual's update with its norms."""
    cg_update.cg_residual(r, ap, c)
    return c.r2


def replayed_seconds(device: Device, work: Work) -> float:
    """Time of a call in a graph of many."""

    def calls() -> None:
        for _ in range(CALLS):
            work()

    many = stream.repeated(calls, cupy)
    many()
    return device.seconds(many) / CALLS


if __name__ == "__main__":
    main()
