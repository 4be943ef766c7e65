"""Setup and solves with multigrid, and the same solves with BiCGstab, masses from heavy to light.

    python tests/benchmarks/multigrid.py [--backend cuda] [--gauge FILE [--tile 2] | --lattice 16 16 16 16
    --beta 6.0] [--mass -0.5 -0.55] [--csw 1.0] [--rhs 16 1] [--aggregate 4 4 4 4 [2 2 2 2 ...]]
    [--vectors 24 ...] [--refinements 2] [--smoothing 6] [--repeats 3] [--no-bicgstab]

Wilson-clover, antiperiodic in t, on the configuration of a file, repeated `tile` times in each direction, or
on a quenched one by heat bath; random normal sources on the whole lattice, the symmetric Schur complement of
the even sites to a relative residual of 1e-10. A first setup and solve compile the kernels; the fastest of
the repeats counts. Columns: seconds of the setup and its factor per cycle; right-hand sides; iterations and
milliseconds per right-hand side of multigrid and of BiCGstab, iterated in single precision with residuals in
double; the ratio of the times.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import numpy as np

from stages.dirac.wilson import WilsonDslash, WilsonOperator
from stages.gauge.heatbath import thermalised
from stages.gauge.wilson_links import wilson_links
from stages.lattice.formats import read_gauge
from stages.lattice.geometry import Lattice
from stages.lattice.layout import gauge_to_lexicographic, gauge_to_parity
from stages.multigrid.hierarchy import Hierarchy
from stages.multigrid.multigrid import Level, Multigrid
from stages.multigrid.smoother import GCRSmoother
from stages.solvers.bicgstab import BiCGstab
from workflows.benchmarks.machine import Machine, machine_of

SEED, TOLERANCE = 577, 1e-10
COLUMNS = ("mass", "setup s", "rate", "rhs", "iterations", "ms", "BiCGstab", "ms", "speed-up")


def main() -> None:
    """Print the table."""
    arguments = parsed()
    machine = machine_of(arguments.backend)
    links, lattice = configuration(arguments, machine)
    made = wilson_links(links, lattice, boundary="antiperiodic", csw=arguments.csw)
    multigrid = parameters(arguments)
    print(f"{machine.name}; {lattice}, csw = {arguments.csw:g}; aggregates {arguments.aggregate}, ", end="")
    print(f"{arguments.vectors} vectors, {arguments.refinements} refinements, {arguments.smoothing} steps\n")
    print(f"{row(*COLUMNS)}\n{row(*['---'] * len(COLUMNS))}", flush=True)
    for mass in arguments.mass:
        M = WilsonOperator(WilsonDslash(made), mass)
        multigrid.setup(M)
        setups = [multigrid.setup(M) for _ in range(arguments.repeats)]
        best = min(setups, key=lambda hierarchy: hierarchy.seconds)
        for rhs in arguments.rhs:
            print(row(f"{mass:g}", f"{best.seconds:.3g}", f"{best.rate:.2g}", str(rhs), end=" "), end="")
            print(solves(arguments, machine, best, rhs), flush=True)


def solves(arguments: argparse.Namespace, machine: Machine, hierarchy: Hierarchy, rhs: int) -> str:
    """The columns of the solves of one mass for so many right-hand sides."""
    S, rng = hierarchy.system, np.random.default_rng(SEED)
    shape = (*hierarchy.M.shape, rhs)
    b = S.prepare(machine.xp.asarray(rng.normal(size=shape) + 1j * rng.normal(size=shape)))
    iterations, seconds = fastest(hierarchy.solver(TOLERANCE), S, b, arguments.repeats)
    cells = [str(iterations), f"{1e3 * seconds / rhs:.1f}"]
    if not arguments.no_bicgstab:
        other = BiCGstab(TOLERANCE, max_iterations=20_000, inner="single")
        plain, longer = fastest(other, S, b, arguments.repeats)
        cells += [str(plain), f"{1e3 * longer / rhs:.1f}", f"{longer / seconds:.1f}"]
    return row(*cells)


def fastest(solver: Any, A: Any, b: Any, repeats: int) -> tuple[int, float]:
    """Iterations and the least seconds of some equal solves, after one that compiles kernels."""
    solver.solve(A, b, on_failure="return")
    done = [solver.solve(A, b, on_failure="return") for _ in range(repeats)]
    return done[0].iterations, min(solution.seconds for solution in done)


def configuration(arguments: argparse.Namespace, machine: Machine) -> tuple[Any, Lattice]:
    """Thin links where the machine computes, and their lattice."""
    if arguments.gauge is None:
        lattice = Lattice(tuple(arguments.lattice))
        thin = thermalised(lattice, arguments.beta, SEED, "multigrid", arguments.sweeps, 4, xp=machine.xp)
        return thin, lattice
    gauge = read_gauge(arguments.gauge)
    tile = arguments.tile
    plain = np.tile(gauge_to_lexicographic(gauge.links, gauge.lattice), (tile, tile, tile, tile, 1, 1, 1))
    lattice = Lattice(tuple(tile * extent for extent in gauge.lattice.extents))  # type: ignore[arg-type]
    return machine.xp.asarray(gauge_to_parity(plain, lattice)), lattice


def parameters(arguments: argparse.Namespace) -> Multigrid:
    """The hierarchy that the arguments describe."""
    smoother = GCRSmoother(arguments.smoothing)
    extents = np.array(arguments.aggregate).reshape(-1, 4)
    vectors = (arguments.vectors * len(extents))[: len(extents)]
    first = Level(pre=smoother, post=smoother, refinements=arguments.refinements)
    return Multigrid(
        tuple(
            dataclasses.replace(first, aggregate=tuple(int(e) for e in aggregate), vectors=count)
            for aggregate, count in zip(extents, vectors, strict=True)
        )
    )


def row(*cells: str, end: str = " |") -> str:
    """A line, or the beginning of one, of a table."""
    return "| " + " | ".join(cells) + end


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--gauge")
    parser.add_argument("--tile", type=int, default=1)
    parser.add_argument("--lattice", type=int, nargs=4, default=[16, 16, 16, 16])
    parser.add_argument("--beta", type=float, default=6.0)
    parser.add_argument("--sweeps", type=int, default=50)
    parser.add_argument("--mass", type=float, nargs="+", default=[-0.5, -0.55])
    parser.add_argument("--csw", type=float, default=1.0)
    parser.add_argument("--rhs", type=int, nargs="+", default=[16])
    parser.add_argument("--aggregate", type=int, nargs="+", default=[4, 4, 4, 4])
    parser.add_argument("--vectors", type=int, nargs="+", default=[24])
    parser.add_argument("--refinements", type=int, default=2)
    parser.add_argument("--smoothing", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-bicgstab", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
