"""The coarse-grid dslash of a GPU against its limits, as Markdown tables.

    python tests/benchmarks/coarse_dslash.py [--vectors 24 32] [--extents 8 4 2] [--rhs 1 4 8 16 32]

Nine random complex64 matrices of 2 x vectors rows at each site of a periodic lattice extents^4. First table:
time by right-hand sides, its rate, bytes with perfect reuse over time and the copy bandwidth of the same run,
error against double precision, cuBLAS (gather, then a batched product) beside, and time and error with links
of 16 bits, as cycles have them. Second table: the rate as one source of parallelism after the other is added,
at eight right-hand sides, then with more of them.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from math import ceil
from typing import Any

import cupy
import numpy as np

from script import PrintedTable, arguments_of
from stages.lqcd.kernels.cuda import coarse_dslash as kernel
from stages.lqcd.kernels.cuda.coarse_dslash import ROWS
from stages.lqcd.kernels.dispatch import Array
from workflows.benchmarks.machine import Device, random_field

DIRECTIONS = 9


class CoarseProblem:
    """One operator: matrices ``[site, 9, n, n]``, neighbours, and the same packed for the kernel."""

    def __init__(self, device: Device, vectors: int, extent: int) -> None:
        self.device, self.n, self.sites = device, 2 * vectors, extent**4
        self.names = vectors, f"{extent}⁴"
        sites = np.arange(self.sites).reshape((extent,) * 4)
        hops = [np.roll(sites, hop, axis=mu).ravel() for mu in range(4) for hop in (1, -1)]
        table = np.stack([*hops, sites.ravel()], axis=-1).astype(np.int32)
        links = random_field(device, (self.sites, DIRECTIONS, self.n, self.n), np.complex64)
        self.packed, self.table = kernel.pack(links, table), cupy.asarray(table)
        self.half = kernel.pack_half(links, table)
        self.rows = links.swapaxes(1, 2).reshape(self.sites, self.n, DIRECTIONS * self.n)

    def fields(self, rhs: int) -> tuple[Array, Array]:
        """A field x, and room for the result."""
        x = random_field(self.device, (self.sites, self.n, rhs), np.complex64)
        return x, cupy.empty_like(x)

    def gflops(self, rhs: int, seconds: float) -> float:
        return 8e-9 * self.sites * DIRECTIONS * self.n**2 * rhs / seconds

    def gigabytes(self, rhs: int) -> float:
        return 8e-9 * self.sites * (DIRECTIONS * self.n**2 + 2 * self.n * rhs)

    def seconds(self, rhs: int, groups: int | None = None, split: int | None = None) -> float:
        """Seconds of the kernel, in its own shape or with so many row groups a warp and warps a block."""
        x, out = self.fields(rhs)
        launch = kernel.coarse_dslash_launch(self.n, rhs, DIRECTIONS, self.sites, groups, split)
        return self.device.seconds(partial(kernel.start, launch, self.packed, x, out))

    def with_cublas(self, x: Array, sites: slice = slice(None), dtype: type = np.complex64) -> Array:
        """Gathered neighbours times the matrices."""
        gathered = x[self.table[sites]].reshape(-1, DIRECTIONS * self.n, x.shape[-1])
        return self.rows[sites].astype(dtype, copy=False) @ gathered.astype(dtype, copy=False)

    def half_seconds(self, rhs: int) -> float:
        """Seconds of the kernel with links of 16 bits."""
        return self.device.seconds(partial(kernel.coarse_dslash, self.half, *self.fields(rhs)))

    def error(self, rhs: int, packed: Any) -> float:
        """Root mean square of the difference to double precision over that of the result."""
        x, out = self.fields(rhs)
        exact = self.with_cublas(x, slice(256), np.complex128)
        kernel.coarse_dslash(packed, x, out)
        return float(cupy.linalg.norm(out[:256] - exact) / cupy.linalg.norm(exact))


def main() -> None:
    """Print both tables for the device at hand."""
    options = {"vectors": [24, 32], "extents": [8, 4, 2], "rhs": [1, 4, 8, 16, 32]}
    arguments, device = arguments_of(__doc__, options=options), Device()
    copy = device.copy_bandwidth()
    print(f"{device.name}, copy {copy:.0f} GB/s")
    problems = [CoarseProblem(device, *sizes) for sizes in product(arguments.vectors, arguments.extents)]
    names = "vectors", "lattice"
    rates_of = "N", "us", "us / N", "GFLOP/s", "of copy", "error", "cuBLAS / this"
    table = PrintedTable(*names, *rates_of, "16 bits, us", "error")
    for problem, rhs in product(problems, arguments.rhs):
        seconds = problem.seconds(rhs)
        cublas = device.seconds(partial(problem.with_cublas, problem.fields(rhs)[0]))
        rates = problem.gflops(rhs, seconds), problem.gigabytes(rhs) / seconds / copy
        microseconds = 1e6 * seconds
        cells = rhs, microseconds, microseconds / rhs, *rates
        errors = [problem.error(rhs, packed) for packed in (problem.packed, problem.half)]
        half = 1e6 * problem.half_seconds(rhs), errors[1]
        table.add(*problem.names, *cells, errors[0], cublas / seconds, *half)
    more = [rhs for rhs in arguments.rhs if rhs > 8]
    table = PrintedTable(*names, "sites", "+ rows", "+ terms", *(f"N = {rhs}" for rhs in more))
    for problem in problems:
        few = (
            problem.seconds(8, ceil(problem.n / ROWS), 1),
            problem.seconds(8, 1, 1),
            min(problem.seconds(8, 1, 2**k) for k in range(1, 5)),
        )
        eight = (problem.gflops(8, seconds) for seconds in few)
        table.add(*problem.names, *eight, *(problem.gflops(rhs, problem.seconds(rhs)) for rhs in more))


if __name__ == "__main__":
    main()
