"""Laplace eigenvectors of all time slices together, for several blocks and chunks of slices, as a table.

    python -m workflows.benchmarks.laplace_eigenvectors [--backend cuda] [--lattice 24 24 24 48]
    [--vectors 64] [--block 8 1 16] [--slices 48 2] [--precision double]

-Laplacian of stout-smeared links of one quenched configuration. The first block is run with each number of
slices together, of which one chunk is timed; the other blocks with the first number. Each is run once before,
to compile the kernels. Columns: restarts, applications of the folded operator to one vector of all
slices of the chunk, degree of the filter, wall time of a chunk, milliseconds a slice and its ratio to the
first row; what the applications alone would take at the copy bandwidth, as a part of the wall time.
"""

from __future__ import annotations

import argparse

from stages.distillation.laplace_eigenvectors import DTYPES
from stages.lqcd.dirac.laplacian import FoldedLaplacian, SpatialHop
from stages.lqcd.distillation.eigenvectors import slices_alone
from stages.lqcd.eigen.batched_lanczos import BatchedLanczos
from stages.lqcd.gauge.stout import SPATIAL_DIRECTIONS, stout_links
from stages.lqcd.kernels import directions
from stages.lqcd.lattice.geometry import Lattice
from workflows.benchmarks.machine import Machine, machine_of
from workflows.benchmarks.script import head, options, quenched, row

SEED, OVERRELAXATION, RHO, STEPS = 273, 4, 0.1, 10
TOLERANCES = {"double": 1e-10, "single": 1e-5}
COLUMNS = (
    *("slices", "block", "restarts", "matvecs", "degree", "seconds", "ms per slice", "ratio"),
    "operator / wall",
)


def main() -> None:
    """Print the table of the run that the arguments name."""
    arguments = parsed()
    machine, lattice = machine_of(arguments.backend), Lattice(tuple(arguments.lattice))
    thin = quenched(lattice, "laplacian", beta=6.0, seed=SEED, sweeps=arguments.sweeps, xp=machine.xp)
    links = stout_links(thin, lattice, RHO, STEPS, SPATIAL_DIRECTIONS)
    copy = machine.copy_bandwidth()
    tolerance = arguments.tolerance or TOLERANCES[arguments.precision]
    print(f"{machine.name}, copy {copy:.0f} GB/s; {lattice}, {arguments.sweeps} sweeps at beta = 6, ", end="")
    print(f"{STEPS} steps of stout smearing; {arguments.vectors} vectors to {tolerance:g}")
    print(f"\n{head(*COLUMNS)}", flush=True)
    slices, blocks = arguments.slices or [lattice.time_extent, 2], arguments.block
    first = 0.0
    for count, block in [(count, blocks[0]) for count in slices] + [(slices[0], b) for b in blocks[1:]]:
        hop = SpatialHop(*slices_alone(links, lattice, range(count)), DTYPES[arguments.precision])
        cells, per_slice = measured(machine, hop, block, arguments.vectors, tolerance, copy)
        first = first or per_slice
        ratio, share = f"{per_slice / first:.2f}", cells.pop()
        print(row(str(count), str(block), *cells, ratio, share), flush=True)


def measured(
    machine: Machine, hop: SpatialHop, block: int, vectors: int, tolerance: float, copy: float
) -> tuple[list[str], float]:
    """Cells of a row, and milliseconds a slice."""
    A, count = FoldedLaplacian(hop), hop.lattice.time_extent
    method = BatchedLanczos(vectors, block, tolerance)
    eigenpairs = method.solve(A, count, machine.xp)
    seconds = machine.wall_seconds(lambda: method.solve(A, count, machine.xp))
    numbers_moved = 2 * (directions.SPATIAL_DIRECTIONS * 9 / block + 2 * 3)  # by two hops; links once a block
    moved = numbers_moved * hop.dtype.itemsize * hop.lattice.half_volume
    floor = eigenpairs.matvecs * moved / copy / 1e9
    numbers = [str(eigenpairs.restarts), str(eigenpairs.matvecs), str(eigenpairs.degree), f"{seconds:.2f}"]
    return [*numbers, f"{1000 * seconds / count:.1f}", f"{floor / seconds:.2f}"], 1000 * seconds / count


def parsed() -> argparse.Namespace:
    parser = options(__doc__, lattice=(8, 8, 8, 8))
    parser.add_argument("--sweeps", type=int, default=10, help="of the heat bath (default 10)")
    parser.add_argument("--vectors", type=int, default=16)
    parser.add_argument("--block", type=int, nargs="+", default=[8, 1, 4, 16])
    parser.add_argument("--slices", type=int, nargs="+", help="together; all and two unless given")
    parser.add_argument("--precision", choices=tuple(DTYPES), default="double")
    parser.add_argument("--tolerance", type=float)
    return parser.parse_args()


if __name__ == "__main__":
    main()
