"""Iterations and time of solves deflated by 0, 16, 64, 256 vectors, masses from strange to light.

    python -m workflows.benchmarks.deflated_solves [--backend cuda] [--lattice 8 8 8 16] [--beta 5.7]
    [--mass 0.05 0.01 0.001] [--vectors 0 16 64 256] [--rhs 16] [--precision double]

HISQ links of one quenched configuration, the normal operator on the even sites, Z2 noise, eigenvectors by
block Lanczos. The fastest of some equal solves counts. Columns: kappa, the condition number that
remains, from the first eigenvalue that is not deflated (of the last vectors: their own) and the upper end of
the Lanczos window; iterations, and their ratio to sqrt(kappa) / 2 ln(2 / tolerance); corrections in the
subspace and the milliseconds that all of them take, timed alone; milliseconds of the solve; the ratio of the
latter to no vectors. Times are per right-hand side.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stages.lqcd.dirac.staggered import NormalOperator, SquaredDslash
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.lattice.geometry import EVEN, Lattice
from stages.lqcd.noise.vectors import noise_vectors
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.deflation import DeflatedSolver, Deflation, StaggeredDeflation
from workflows.benchmarks.machine import Machine, machine_of
from workflows.benchmarks.script import head, options, quenched, row, staggered

SEED = 271
MOST = 100_000
"""Iterations."""
SOLVERS: dict[str, tuple[Any, str | None]] = {
    "batched_cg double": (BatchedCG, None),
    "batched_cg double-single": (BatchedCG, "single"),
    "block_cgrq double": (BlockCGrQ, None),
    "block_cgrq double-single": (BlockCGrQ, "single"),
}
COLUMNS = (
    *("mass", "vectors", "kappa", "iterations", "of theory"),
    *("corrections", "ms of them", "ms", "speed-up"),
)


def main() -> None:
    """Print a table for each solver that the arguments name."""
    arguments = parsed()
    machine, lattice = machine_of(arguments.backend), Lattice(tuple(arguments.lattice))
    chain: dict[str, Any] = {"beta": arguments.beta, "seed": SEED, "sweeps": arguments.sweeps}
    thin = quenched(lattice, "deflated solves", **chain, xp=machine.xp)
    dslash = staggered(thin, lattice)
    B, wanted = SquaredDslash(dslash), max(arguments.vectors)
    pairs = BlockLanczos(wanted, arguments.block, arguments.lanczos).solve(B, machine.xp)
    print(f"{machine.name}; {lattice}, beta = {arguments.beta:g}; {arguments.rhs} right-hand sides ", end="")
    print(f"to {arguments.tolerance:g}; vectors in {arguments.precision} precision")
    print(f"{wanted} eigenpairs, residual {pairs.residuals.max():.1e}: {pairs.seconds:.1f} s, ", end="")
    print(f"{pairs.matvecs} applications of B; lowest {pairs.values[0]:.3g}, last {pairs.values[-1]:.3g}")
    dtype = np.complex64 if arguments.precision == "single" else np.complex128
    even = Deflation.measured(B, pairs.vectors.astype(dtype))
    space = StaggeredDeflation(dslash, even)
    print(f"largest residual of the vectors as they are used: {np.asarray(even.residuals).max():.1e}")
    upper, values = pairs.window[1], pairs.values
    del pairs, thin
    b = noise_vectors(lattice, EVEN, "deflated solves", SEED, range(arguments.rhs), xp=machine.xp)
    for name in arguments.solver:
        print(f"\n## {name}\n\n{head(*COLUMNS)}", flush=True)
        for mass in arguments.mass:
            plain = 0.0
            for count in arguments.vectors:
                remaining = values[min(count, len(values) - 1)]
                kappa = (upper + 4 * mass**2) / (remaining + 4 * mass**2)
                line, seconds = measured(
                    machine, space, name, mass, count, kappa, b, arguments.tolerance, arguments.repeats
                )
                plain = plain or seconds
                print(row(f"{mass:g}", str(count), *line, f"{plain / seconds:.2f}"), flush=True)


def lowest(space: StaggeredDeflation, count: int) -> StaggeredDeflation:
    """The space of so many of the lowest vectors, a view."""
    even = space.even
    matrices = even.gram[:count, :count], even.projected[:count, :count]
    residuals = None if even.residuals is None else even.residuals[:count]
    return StaggeredDeflation(space.dslash, Deflation(even.vectors[..., :count], *matrices, residuals))


def measured(
    machine: Machine,
    space: StaggeredDeflation,
    name: str,
    mass: float,
    count: int,
    kappa: float,
    b: Any,
    tolerance: float,
    repeats: int,
) -> tuple[tuple[str, ...], float]:
    """Cells of a row, and seconds of the solve."""
    method, inner = SOLVERS[name]
    A, rhs = NormalOperator(space.dslash, mass), b.shape[-1]
    solver: Any = method(tolerance, MOST, inner)
    alone = 0.0
    if count:
        chosen = lowest(space, count)
        solver = DeflatedSolver(solver, chosen)
        correct = chosen.correction(A)
        alone = best_of(machine, lambda: correct(b))
    solution = min((solver.solve(A, b) for _ in range(repeats)), key=lambda solution: solution.seconds)
    theory = np.sqrt(kappa) / 2 * np.log(2 / tolerance)
    corrections = solution.extras["deflations"]
    cells = (
        *(f"{kappa:.3g}", str(solution.iterations), f"{solution.iterations / theory:.2f}"),
        *(str(corrections), milliseconds(corrections * alone, rhs), milliseconds(solution.seconds, rhs)),
    )
    return cells, solution.seconds


def best_of(machine: Machine, work: Callable[[], Any], times: int = 3) -> float:
    """Seconds of a call that is waited for, the best of some after a first one."""
    wait = machine.xp.cuda.Device().synchronize if machine.backend == "cuda" else lambda: None
    best = np.inf
    for _ in range(times + 1):
        wait()
        started = time.perf_counter()
        work()
        wait()
        best = min(best, time.perf_counter() - started)
    return best


def milliseconds(seconds: float, rhs: int) -> str:
    return f"{1e3 * seconds / rhs:.3g}"


def parsed() -> argparse.Namespace:
    parser = options(__doc__)
    parser.add_argument("--beta", type=float, default=5.7, help="of the Wilson action (default 5.7)")
    parser.add_argument("--sweeps", type=int, default=40)
    parser.add_argument("--mass", type=float, nargs="+", default=[0.05, 0.01, 0.001])
    parser.add_argument("--vectors", type=int, nargs="+", default=[0, 16, 64, 256])
    parser.add_argument("--rhs", type=int, default=16)
    parser.add_argument("--tolerance", type=float, default=1e-10)
    parser.add_argument("--precision", choices=("double", "single"), default="double", help="of the vectors")
    parser.add_argument("--solver", nargs="+", choices=SOLVERS, default=list(SOLVERS))
    parser.add_argument("--block", type=int, default=16, help="of the Lanczos run (default 16)")
    parser.add_argument("--lanczos", type=float, default=1e-10, help="tolerance of the Lanczos run")
    parser.add_argument("--repeats", type=int, default=3, help="of each solve (default 3)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
