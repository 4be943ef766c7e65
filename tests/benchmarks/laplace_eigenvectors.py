"""Laplace eigenvectors of all time slices together, for several blocks and chunks of slices, as a table.

    python tests/benchmarks/laplace_eigenvectors.py [--backend cuda] [--lattice 24 24 24 48]
    [--vectors 64] [--block 8 1 16] [--slices 48 2] [--precision double] [--arpack]

-Laplacian of stout-smeared links of one quenched configuration. The first block is run with each number of
slices together (0: all), of which one chunk is timed; the other blocks with the first number. Each is run
once before, to compile the kernels. Columns: restarts, applications of the folded operator to one vector of
all slices of the chunk, degree of the filter, wall time of a chunk, milliseconds a slice and its ratio to the
first row; what the applications alone would take at the copy bandwidth, as a part of the wall time.

`--arpack` sets the CPU time of a slice, of the first row, beside that of SciPy's ARPACK with its own subspace
and with four times the vectors: the folded operator of one slice as a sparse matrix, whose making does not
count. Set OPENBLAS_NUM_THREADS=1. Each is the least of seven.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import eigsh

from script import PrintedTable, arguments_of, quenched
from stages.distillation.laplace_eigenvectors import DTYPES
from stages.lqcd.dirac.laplacian import SpatialHop, folded_laplacian
from stages.lqcd.dirac.staggered import SquaredDslash
from stages.lqcd.distillation.eigenvectors import slices_alone
from stages.lqcd.eigen.batched_lanczos import BatchedLanczos
from stages.lqcd.gauge.stout import SPATIAL_DIRECTIONS, stout_links
from stages.lqcd.kernels import directions

SEED, RHO, STEPS = 273, 0.1, 10
TOLERANCES = {"double": 1e-10, "single": 1e-5}
COLUMNS = (
    *("slices", "block", "restarts", "matvecs", "degree", "seconds", "ms per slice", "ratio"),
    "operator / wall",
)


def main() -> None:
    """Print the table of the run that the arguments name."""
    problem = {"sweeps": 10, "vectors": 16, "precision": tuple(DTYPES), "tolerance": float}
    options = {**problem, "block": [8, 1, 4, 16], "slices": [0, 2], "arpack": False}
    arguments = arguments_of(__doc__, lattice=(8, 8, 8, 8), machine="cpu", options=options)
    machine, lattice, vectors = arguments.machine, arguments.lattice, arguments.vectors
    thin = quenched(lattice, "laplacian", beta=6.0, seed=SEED, sweeps=arguments.sweeps, xp=machine.xp)
    links = stout_links(thin, lattice, RHO, STEPS, SPATIAL_DIRECTIONS)
    copy = machine.copy_bandwidth()
    tolerance = arguments.tolerance or TOLERANCES[arguments.precision]
    print(f"{machine.name}, copy {copy:.0f} GB/s; {lattice}, {arguments.sweeps} sweeps at beta = 6, ", end="")
    print(f"{STEPS} steps of stout smearing; {vectors} vectors to {tolerance:g}")
    table, first = PrintedTable(*COLUMNS), 0.0
    slices, blocks = [count or lattice.time_extent for count in arguments.slices], arguments.block
    for count, block in [(count, blocks[0]) for count in slices] + [(slices[0], b) for b in blocks[1:]]:
        hop = SpatialHop(*slices_alone(links, lattice, range(count)), DTYPES[arguments.precision])
        A, method = folded_laplacian(hop), BatchedLanczos(vectors, block, tolerance)
        pairs = method.solve(A, count)
        seconds = machine.wall_seconds(lambda: method.solve(A, count))  # noqa: B023
        numbers = 2 * (directions.SPATIAL_DIRECTIONS * 9 / block + 2 * 3)  # of two hops; links once a block
        moved = pairs.matvecs * numbers * hop.dtype.itemsize * hop.lattice.half_volume
        each = 1e3 * seconds / count
        first = first or each
        cells = pairs.restarts, pairs.matvecs, pairs.degree, seconds, each, each / first
        table.add(count, block, *cells, moved / copy / 1e9 / seconds)
    if arguments.arpack:
        hop = SpatialHop(*slices_alone(links, lattice, range(slices[0])), DTYPES[arguments.precision])
        method = BatchedLanczos(vectors, blocks[0], tolerance)
        ours = cpu_seconds(lambda: method.solve(folded_laplacian(hop), slices[0])) / slices[0]
        matrix = one_slice(folded_laplacian(hop), slices[0])
        theirs = [
            cpu_seconds(lambda: eigsh(matrix, vectors, which="SA", tol=tolerance, ncv=size))  # noqa: B023
            for size in (None, 4 * vectors)
        ]
        own, large = (f"{1e3 * seconds:.1f}" for seconds in theirs)
        print(f"\nCPU ms a slice: {1e3 * ours:.1f}; ARPACK {own}, with 4 times the vectors {large}")


def one_slice(A: SquaredDslash, slices: int) -> scipy.sparse.csr_array:
    """The operator of the first slice as a sparse matrix, 64 columns at a time."""
    rows = int(np.prod(A.shape)) // slices
    blocks = []
    for first in range(0, rows, 64):
        columns = min(64, rows - first)
        unit = np.zeros((rows * slices, columns), A.dtype)
        unit[np.arange(first, first + columns), np.arange(columns)] = 1
        image = A.apply(unit.reshape(*A.shape, columns)).reshape(len(unit), columns)
        blocks.append(scipy.sparse.csr_array(image[:rows]))
    return scipy.sparse.csr_array(scipy.sparse.hstack(blocks))


def cpu_seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """Least CPU time of all threads."""
    times = []
    for _ in range(repeats):
        began = process_time()
        work()
        times.append(process_time() - began)
    return min(times)


if __name__ == "__main__":
    main()
