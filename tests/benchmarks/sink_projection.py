"""Sink projections and current insertions against cuBLAS (or BLAS), and against the bus, as Markdown tables.

    python tests/benchmarks/sink_projection.py [--backend cuda] [--lattice 24 24 24 48]
    [--vectors 64 256] [--columns 32] [--precision single] [--insertions 16 32]

Random vectors and solutions on all time slices. First table, with both in the memory of the machine that
multiplies: the rate of `slice_products.sink_projection`, 96 flops per site, vector and column; that of the
library's plain products of the same size, [k, R] times [R, 4 N], with operands that lie as it likes best, the
fastest of one product, one for each slice, and one for every thousand rows or so; error of the first slice
against double, norm over norm; how many times longer all pairs take vector by vector, from the time of one
pair by the kernel or by einsum, whichever is faster.

Second table, with vectors elsewhere: on a GPU in page-locked memory of the host, as `laplace_basis` holds
what is too large, on a CPU in an array that must be copied; a third of their bytes is allowed for tiles. Rate
of everything in bytes of vectors; what a copy alone reaches (on a GPU from page-locked memory); fraction of
the faster of that and the first table's rate; planned and allocated memory.

Third table, for as many solutions on either side as `--insertions` says: psi_i^dag Gamma e^{ipx} D psi_j of
all sixteen Dirac matrices on all slices, results on the host, with the right solutions beside the left ones
and, as the stage `current_insertion` keeps them, in the host's memory. ms per momentum and displacement; the
rate, 384 flops per site and pair; that of the library's products of the same size, as above; how many times
longer single pairs take, from the time of one.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from script import PrintedTable, arguments_of
from stages.lqcd.distillation.currents import current_insertions
from stages.lqcd.distillation.insertions import Insertions
from stages.lqcd.distillation.projection import planned_bytes, sink_projections
from stages.lqcd.kernels import slice_products
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, SPINS
from stages.lqcd.kernels.reference import slice_products as reference
from stages.lqcd.kernels.transfer import HOST_TO_DEVICE, copy_to_host, page_locked
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.gammas import DIRAC
from workflows.benchmarks.machine import Machine, Work, fastest, random_field
from workflows.benchmarks.speed import DTYPES

FLOPS = 8 * COMPONENTS
"""Per site, vector and column."""

COPY_BYTES = 1 << 30
RUN_ROWS = 1024
NAMES = ("k", "N")
RESIDENT = ("GFLOP/s", "library GFLOP/s", "products", "fraction", "error", "singly / this")
STREAMED = ("seconds", "GB/s", "copy GB/s", "of limit", "planned GB", "allocated GB")
INSERTED = (
    *("N", "momenta", "displacements", "right solutions", "ms", "ms per current", "GFLOP/s"),
    *("library GFLOP/s", "singly / this"),
)
MOMENTA = tuple((x, y, z) for x, y, z in product((0, 1), repeat=3))
CURRENTS = ((MOMENTA[:1], ("",)), (MOMENTA, ("",)), (MOMENTA[:1], ("", "+x", "+y", "+z")))
AMPLE = 1 << 34
"""Bytes that insertions may take."""


class Elsewhere:
    """A NumPy array that the host's kernels do not take as it is."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, part: Any) -> Any:
        return self.array[part]


class ProjectionProblem:
    """Vectors and solutions on a machine."""

    def __init__(self, machine: Machine, lattice: Lattice, k: int, n: int, dtype: np.dtype) -> None:
        self.machine, self.lattice, self.k, self.n = machine, lattice, k, n
        times, sites = lattice.time_extent, lattice.sites_per_slice
        self.vectors = repeated(machine, times, (2, sites, COLOURS, k), dtype)
        self.solutions = repeated(machine, 2, (lattice.half_volume, COMPONENTS, n), dtype)
        self.out = machine.xp.empty((times, SPINS, k, n), np.complex128)
        self.kernel = slice_products.sink_projection

    def seconds(self) -> float:
        return self.machine.seconds(lambda: self.kernel(self.vectors, self.solutions, self.out))

    def error(self) -> float:
        """Error of the first slice."""
        sites, xp = self.lattice.sites_per_slice, self.machine.xp
        solutions = xp.ascontiguousarray(self.solutions[:, :sites])
        exact = xp.empty((1, *self.out.shape[1:]), np.complex128)
        reference.sink_projection(self.vectors[:1], solutions, exact)
        return float(xp.linalg.norm(self.out[:1] - exact) / xp.linalg.norm(exact))

    def library_seconds(self) -> tuple[float, int]:
        """Seconds of the fastest of the library's ways to do these products, and the number of its calls."""
        times, rows = self.lattice.time_extent, 2 * COLOURS * self.lattice.sites_per_slice
        right = self.solutions.reshape(times * rows, SPINS * self.n)
        left, each = self.vectors.reshape(times * rows, self.k), rows
        while each > RUN_ROWS and each % 2 == 0:
            each //= 2
        counts = [1, times, times * rows // each]
        batched = matrix_products if self.machine.backend == "cuda" else host_products
        return min((self.machine.seconds(batched(left, right, count)), count) for count in counts)

    def singly_seconds(self) -> float:
        """Seconds of all pairs, from the time of one."""
        xp, pairs = self.machine.xp, self.k * self.n
        v, psi = (xp.ascontiguousarray(field[..., :1]) for field in (self.vectors, self.solutions))
        out = xp.empty((len(v), SPINS, 1, 1), np.complex128)
        vector, spinors = v[..., 0], psi.reshape(2, len(v), -1, SPINS, COLOURS)
        kernel = self.machine.seconds(lambda: self.kernel(v, psi, out))
        plain = self.machine.seconds(lambda: xp.einsum("tpxc,ptxsc->ts", vector.conj(), spinors))
        return pairs * min(kernel, plain)


def repeated(machine: Machine, count: int, shape: tuple[int, ...], dtype: np.dtype) -> Array:
    """One random field several times: the speed is the same, and it is made in less memory."""
    fields = machine.xp.empty((count, *shape), dtype)
    fields[...] = random_field(machine, shape, dtype)
    return fields


def host_products(left: Array, right: Array, count: int) -> Work:
    """`count` products over equal runs of rows; conj(left) is left out, it would be a copy."""
    factors = left.reshape(count, -1, left.shape[1]).swapaxes(1, 2), right.reshape(count, -1, right.shape[1])
    return lambda: np.matmul(*factors)


def matrix_products(left: Any, right: Any, count: int) -> Work:
    """left^H right over `count` equal runs of rows, by one call of cuBLAS."""
    import cupy
    from cupy.cuda import cublas

    (rows, k), n, dtype = left.shape, right.shape[1], left.dtype
    terms, out = rows // count, cupy.empty((count, k, n), dtype)
    one, zero = np.array(1, dtype), np.array(0, dtype)
    call = cublas.zgemmStridedBatched if dtype == np.complex128 else cublas.cgemmStridedBatched

    def work() -> None:
        call(
            *(cupy.cuda.device.get_cublas_handle(), cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_C, n, k, terms),
            *(one.ctypes.data, right.data.ptr, n, terms * n, left.data.ptr, k, terms * k),
            *(zero.ctypes.data, out.data.ptr, n, k * n, count),
        )

    return work


def copy_bandwidth(machine: Machine, vectors: Any) -> float:
    """GB/s of the fastest copy to where tiles are multiplied."""
    if machine.backend == "cpu":
        target = np.empty_like(vectors)
        return vectors.nbytes / machine.seconds(lambda: np.copyto(target, vectors)) / 1e9
    cuda, target = machine.xp.cuda, machine.xp.empty(COPY_BYTES, np.uint8)
    pinned = cuda.alloc_pinned_memory(COPY_BYTES)

    def work() -> None:
        stream = cuda.get_current_stream().ptr
        cuda.runtime.memcpyAsync(target.data.ptr, pinned.ptr, COPY_BYTES, HOST_TO_DEVICE, stream)

    return COPY_BYTES / machine.seconds(work) / 1e9


def resident(problem: ProjectionProblem) -> tuple[float, tuple[object, ...]]:
    """Seconds of the kernel, and its cells of the first table."""
    seconds, (library, count) = problem.seconds(), problem.library_seconds()
    flops = FLOPS * problem.lattice.volume * problem.k * problem.n
    rates = (flops / time / 1e9 for time in (seconds, library))
    return seconds, (*rates, count, library / seconds, problem.error(), problem.singly_seconds() / seconds)


def streamed(problem: ProjectionProblem, kernel_seconds: float) -> tuple[object, ...]:
    """Cells of the second table; the problem has no vectors any more."""
    machine, solutions, xp, array = problem.machine, problem.solutions, problem.machine.xp, problem.vectors
    on_device = machine.backend == "cuda"
    vectors: Any = array
    if on_device:
        vectors = vectors.get(out=page_locked(vectors.shape, vectors.dtype))
    copy = copy_bandwidth(machine, vectors)
    del problem.vectors, problem.out, array
    source = vectors if on_device else Elsewhere(vectors)
    bound = max(vectors.nbytes // 3, planned_bytes(source, solutions, xp, 1))
    pool = xp.get_default_memory_pool() if on_device else None
    if pool is not None:
        pool.free_all_blocks()
    before = pool.total_bytes() if pool is not None else 0
    seconds = fastest(machine, lambda: sink_projections(source, solutions, xp, bound))
    allocated = None if pool is None else (pool.total_bytes() - before) / 1e9
    size, limit = vectors.nbytes / 1e9, max(kernel_seconds, vectors.nbytes / copy / 1e9)
    return seconds, size / seconds, copy, limit / seconds, bound / 1e9, allocated


def inserted(machine: Machine, lattice: Lattice, n: int, dtype: np.dtype, table: PrintedTable) -> None:
    """Print the lines of insertions between n solutions and n."""
    left = repeated(machine, 2, (lattice.half_volume, COMPONENTS, n), dtype)
    links = random_field(machine, (4, 2, lattice.half_volume, COLOURS, COLOURS), dtype)
    same_size = ProjectionProblem(machine, lattice, SPINS * n, n, dtype)
    library, _ = same_size.library_seconds()
    del same_size
    single = machine.xp.ascontiguousarray(left[..., :1])
    flops = FLOPS * SPINS * lattice.volume * n * n
    for momenta, displacements in CURRENTS:
        insertions, count = Insertions(lattice, momenta, displacements), len(momenta) * len(displacements)
        pair = insertion_seconds(machine, single, single, links, insertions)
        for place, right in {"with the left": left, "on the host": copy_to_host(left)}.items():
            whole = insertion_seconds(machine, left, right, links, insertions)
            rates = (count * flops / time / 1e9 for time in (whole, count * library))
            times = 1e3 * whole, 1e3 * whole / count
            table.add(n, len(momenta), len(displacements), place, *times, *rates, n * n * pair / whole)


def insertion_seconds(machine: Machine, left: Array, right: Any, links: Array, currents: Insertions) -> float:
    """Wall time of the currents of a set between solutions."""
    gammas, xp = list(DIRAC.values()), machine.xp
    return fastest(machine, lambda: current_insertions(left, right, links, currents, gammas, xp, AMPLE))


def main() -> None:
    """Print the tables of the run that the arguments name."""
    options = {"vectors": [64, 256], "columns": [32], "insertions": [16, 32], "precision": tuple(DTYPES)}
    arguments = arguments_of(__doc__, lattice=(8, 8, 8, 8), machine="cpu", options=options)
    machine, lattice = arguments.machine, arguments.lattice
    print(f"{machine.name}, {lattice}, {arguments.precision} precision")
    table, rows = PrintedTable(*NAMES, *RESIDENT), []
    for k, n in product(arguments.vectors, arguments.columns):
        problem = ProjectionProblem(machine, lattice, k, n, DTYPES[arguments.precision])
        seconds, cells = resident(problem)
        table.add(k, n, *cells)
        rows.append((k, n, *streamed(problem, seconds)))
    table = PrintedTable(*NAMES, *STREAMED)
    for row in rows:
        table.add(*row)
    table = PrintedTable(*INSERTED)
    for n in arguments.insertions:
        inserted(machine, lattice, n, DTYPES[arguments.precision], table)


if __name__ == "__main__":
    main()
