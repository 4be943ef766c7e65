"""Time iterations of batched CG on the device at hand, whole and in parts, and the reductions at N = 1.

    python -m workflows.benchmarks.cg_iterations [--lattice X Y Z T] [--rhs N ...]

An iteration is the difference of a long and a short solve on random links, divided by that of their
iterations; the residual is replaced in neither. Beside it: the same without graph replay, the operator with
p^H A p and the two vector updates, each from a graph of many calls. ps are per (even site, rhs). Reductions:
GPU time of a call in a graph of many, time until the result of a call is on the host, and time of the host in
a call.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter
from unittest.mock import patch

import cupy
import numpy as np

from stages.lqcd.dirac.operator import application
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.gauge.hisq import StaggeredLinks
from stages.lqcd.kernels import block_blas, cg_update, stream
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.cg import BatchedCG
from workflows.benchmarks.block_blas import slow_coefficients
from workflows.benchmarks.machine import Device, random_field

SHORT, LONG, REPEATS = 10, 60, 5
DTYPES = (np.dtype(np.complex64), np.dtype(np.complex128))
CALLS = 20
HEAD = (
    "| lattice | precision | N | iteration ps | A | advance | residual | parts us | whole us | no graph us |"
)


def operator(device: Device, lattice: Lattice) -> NormalOperator:
    """Random links of the size of a free field's, in double; what D is made of does not matter here."""
    fat, long = (random_field(device, (4, 2, lattice.half_volume, 3, 3), np.complex128) for _ in range(2))
    links = StaggeredLinks(fat, long, fat, lattice, ("periodic",) * 4, 0.0)
    return NormalOperator(StaggeredDslash(links), 0.01)


def iteration_seconds(A: NormalOperator, b: cupy.ndarray) -> float:
    """Wall time of one iteration."""

    def seconds(limit: int) -> float:
        start = perf_counter()
        BatchedCG(1e-15, max_iterations=limit).solve(A, b, on_failure="return")
        cupy.cuda.Device().synchronize()
        return perf_counter() - start

    seconds(SHORT)
    short, long = (median(seconds(limit) for _ in range(REPEATS)) for limit in (SHORT, LONG))
    return (long - short) / (LONG - SHORT)


def rows(device: Device, lattice: Lattice, widths: list[int]) -> Iterator[str]:
    """Table rows of one lattice."""
    double = operator(device, lattice)
    for dtype in DTYPES:
        A = double.astype(dtype)
        for n in widths:
            b = random_field(device, (*A.shape, n), dtype)
            whole = iteration_seconds(A, b)
            with patch.object(stream, "repeated", lambda step, xp: step):
                plain = iteration_seconds(A, b)
            x, p, r = b.copy(), b.copy(), b.copy()
            c = slow_coefficients(b)
            apply, _ = application(A, p, x, c.pap)
            parts = (
                apply,
                lambda: cg_update.cg_advance(x, p, r, c),  # noqa: B023
                lambda: cg_update.cg_residual(r, x, c),  # noqa: B023
            )
            applied, advance, residual = (replayed_seconds(device, part) for part in parts)
            unit = 1e12 / (lattice.half_volume * n)
            fine = (f"{unit * s:.1f}" for s in (whole, applied, advance, residual))
            coarse = (f"{1e6 * s:.1f}" for s in (applied + advance + residual, whole, plain))
            yield f"| {lattice} | {dtype} | {n} | {' | '.join((*fine, *coarse))} |"


def reduction_rows(device: Device, lattice: Lattice) -> Iterator[str]:
    """GPU microseconds of a call, and microseconds until its result is on the host, for N = 1."""
    for dtype in DTYPES:
        x, y = (random_field(device, (lattice.half_volume, 3, 1), dtype) for _ in range(2))
        c = slow_coefficients(x)
        for name, work in {
            "norms2": lambda: block_blas.norms2(x),  # noqa: B023
            "dots": lambda: block_blas.dots(x, y),  # noqa: B023
            "cg_residual": lambda: cg_update.cg_residual(x, y, c) or c.r2,  # type: ignore[func-returns-value]  # noqa: B023
        }.items():
            gpu = replayed_seconds(device, work)
            waited = median(device.wall_seconds(lambda: as_numpy(work())) for _ in range(51))  # noqa: B023
            times = " | ".join(f"{1e6 * s:.1f}" for s in (gpu, waited, called_seconds(work)))
            yield f"| {name} | {lattice} | {dtype} | {times} |"


def replayed_seconds(device: Device, work: Callable[[], object]) -> float:
    """Time of a call in a graph of many."""

    def calls() -> None:
        for _ in range(CALLS):
            work()

    many = stream.repeated(calls, cupy)
    many()
    return device.seconds(many) / CALLS


def called_seconds(work: Callable[[], object]) -> float:
    """Time of the host in a call that it does not wait for."""
    cupy.cuda.Device().synchronize()
    start = perf_counter()
    for _ in range(CALLS):
        work()
    return (perf_counter() - start) / CALLS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lattice", type=int, nargs=4, default=[32, 32, 32, 48])
    parser.add_argument("--rhs", type=int, nargs="+", default=[1, 8, 16, 32])
    arguments = parser.parse_args()
    device, lattice = Device(), Lattice(tuple(arguments.lattice))
    print(HEAD, "|---" * 10 + "|", *rows(device, lattice, arguments.rhs), sep="\n", flush=True)
    print("| reduction, N = 1 | lattice | precision | GPU us | until on the host us | call us |")
    print("|---" * 6 + "|", *reduction_rows(device, lattice), sep="\n")


if __name__ == "__main__":
    main()
