"""The coarse-grid dslash of a GPU against its limits, as Markdown tables.

    python -m workflows.benchmarks.coarse_dslash [--vectors 24 32] [--extents 8 4 2] [--rhs 1 4 8 16 32]

Nine random complex64 matrices of 2 x vectors rows at each site of a periodic lattice extents^4. First table:
time by right-hand sides, its rate, bytes with perfect reuse over time and the copy bandwidth of the same run,
error against double precision, and cuBLAS (gather, then a batched product) beside. Second table: the rate as
one source of parallelism after the other is added, at eight right-hand sides, then with more of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from math import ceil

import cupy
import numpy as np

from stages.lqcd.kernels.cuda import coarse_dslash as kernel
from stages.lqcd.kernels.cuda.launch.coarse import ROWS
from stages.lqcd.kernels.cuda.tuning.timing import fastest_times
from workflows.benchmarks.machine import machine_of, random_field

DIRECTIONS = 9


def neighbours(extent: int) -> np.ndarray:
    """int32 ``[site, 9]``: both neighbours in each direction, and the site itself."""
    sites = np.arange(extent**4).reshape((extent,) * 4)
    hops = [np.roll(sites, hop, axis=mu).ravel() for mu in range(4) for hop in (1, -1)]
    return np.stack([*hops, sites.ravel()], axis=-1).astype(np.int32)


def seconds(work: Callable[[], object]) -> float:
    return fastest_times([0], lambda _: work(), work)[0]


class Problem:
    """One operator: matrices, neighbours, and the same packed for the kernel."""

    def __init__(self, machine: object, vectors: int, extent: int) -> None:
        self.machine, self.n, self.sites = machine, 2 * vectors, extent**4
        self.table = neighbours(extent)
        shape = (self.sites, DIRECTIONS, self.n, self.n)
        self.links = random_field(machine, shape, np.complex64)  # type: ignore[arg-type]
        self.packed = kernel.pack(self.links, self.table)
        self.rows = self.links.swapaxes(1, 2).reshape(self.sites, self.n, DIRECTIONS * self.n)

    def block(self, rhs: int) -> cupy.ndarray:
        return random_field(self.machine, (self.sites, self.n, rhs), np.complex64)  # type: ignore[arg-type]

    def flops(self, rhs: int) -> float:
        return 8.0 * self.sites * DIRECTIONS * self.n**2 * rhs

    def bytes(self, rhs: int) -> float:
        return 8.0 * self.sites * (DIRECTIONS * self.n**2 + 2 * self.n * rhs)

    def with_cublas(self, x: cupy.ndarray) -> cupy.ndarray:
        gathered = x[cupy.asarray(self.table)].reshape(self.sites, DIRECTIONS * self.n, -1)
        return self.rows @ gathered

    def error(self, x: cupy.ndarray) -> float:
        """Root mean square of the difference to double precision over that of the result."""
        exact = self.rows[:256].astype(complex) @ x[cupy.asarray(self.table[:256])].astype(complex).reshape(
            min(256, self.sites), DIRECTIONS * self.n, -1
        )
        out = kernel.coarse_dslash(self.packed, x, cupy.empty_like(x))[:256]
        return float(cupy.linalg.norm(out - exact) / cupy.linalg.norm(exact))


def times(problem: Problem, extent: int, widths: list[int], copy: float) -> None:
    for rhs in widths:
        x = problem.block(rhs)
        out = cupy.empty_like(x)
        taken = seconds(partial(kernel.coarse_dslash, problem.packed, x, out))
        cublas = seconds(partial(problem.with_cublas, x))
        cells = [
            f"{problem.n // 2} | {extent}⁴ | {rhs} | {1e6 * taken:.1f} | {1e6 * taken / rhs:.2f}",
            f"{problem.flops(rhs) / taken / 1e9:.0f} | {problem.bytes(rhs) / taken / 1e9 / copy:.2f}",
            f"{problem.error(x):.1e} | {cublas / taken:.1f}",
        ]
        print("|", " | ".join(cells), "|", flush=True)


def parallelism(problem: Problem, extent: int, widths: list[int]) -> None:
    """GFLOP/s: a warp for each site; for each group of rows; terms shared by 2 to 16 warps; more columns."""
    groups = ceil(problem.n / ROWS)
    cells = []
    for rhs, run, split in [(8, groups, 1), (8, 1, 1), *((8, 1, 2**k) for k in range(1, 5))]:
        x = problem.block(rhs)
        out = cupy.empty_like(x)
        taken = seconds(partial(kernel.start, problem.packed, x, out, groups=run, split=split))
        cells.append(problem.flops(rhs) / taken / 1e9)
    best = [*cells[:2], max(cells[2:])]
    for rhs in widths:
        x = problem.block(rhs)
        out = cupy.empty_like(x)
        taken = seconds(partial(kernel.coarse_dslash, problem.packed, x, out))
        best.append(problem.flops(rhs) / taken / 1e9)
    print(f"| {problem.n // 2} | {extent}⁴ |", " | ".join(f"{rate:.0f}" for rate in best), "|", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--vectors", type=int, nargs="+", default=[24, 32])
    parser.add_argument("--extents", type=int, nargs="+", default=[8, 4, 2])
    parser.add_argument("--rhs", type=int, nargs="+", default=[1, 4, 8, 16, 32])
    options = parser.parse_args()
    machine = machine_of("cuda")
    copy = machine.copy_bandwidth()
    print(f"{machine.name}, copy {copy:.0f} GB/s\n")
    print("| vectors | lattice | N | us | us / N | GFLOP/s | of copy | error | cuBLAS / this |")
    print("|---|---|---|---|---|---|---|---|---|")
    problems = [(Problem(machine, v, e), e) for v in options.vectors for e in options.extents]
    for problem, extent in problems:
        times(problem, extent, options.rhs, copy)
    more = [rhs for rhs in options.rhs if rhs > 8]
    print("\n| vectors | lattice | sites | + rows | + terms |", " | ".join(f"N = {rhs}" for rhs in more), "|")
    print("|" + "---|" * (5 + len(more)))
    for problem, extent in problems:
        parallelism(problem, extent, more)


if __name__ == "__main__":
    main()
