"""Conjugate gradients with HISQ links on one configuration: time to solution and of an iteration.

    python tests/benchmarks/hisq_solves.py [--backend cuda]
    [--gauge FILE [--tile 2 2 2 4] | --lattice 8 8 8 8 --beta 6.0] [--mass 0.01] [--rhs 1 16]
    [--only single double double-single double-half] [--repeats 9]
    python tests/benchmarks/hisq_solves.py --backend cuda --light 1 2 3
    --only double double-single double-half [--masses 0.002 0.0005] [--sources wall point noise]

HISQ links, antiperiodic in t, of the configuration of a file, repeated `tile` times in each direction, or of
a quenched one by heat bath; the normal operator on the even sites, random normal sources, batched CG to a
relative residual of 1e-10, in single precision of 1e-6. A first solve compiles the kernels. Columns:
precision; right-hand sides; iterations; milliseconds per right-hand side, the median of the repeats, the
fastest and the slowest; nanoseconds per even site, right-hand side and iteration of the median and of the
fastest; the largest relative residual, computed anew in double precision.

With `--light` instead: one right-hand side to 1e-8 at light masses on lattices of `LIGHT` by their numbers,
quenched by heat bath with as many sweeps; one solve each after a short one that compiles. Columns: lattice;
beta; mass; source; precision; iterations; replacements; seconds; status; the true residual, recomputed. All
rows take some nine minutes of one H200, lattice 1 with `--masses 0.0005` three.
"""

from __future__ import annotations

import argparse
from statistics import median

import numpy as np
from numpy.typing import NDArray

from multigrid_solves import configuration
from script import PrintedTable, arguments_of, quenched, staggered
from stages.lqcd.dirac.staggered import NormalOperator
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.lattice.geometry import EVEN, Lattice
from stages.lqcd.lattice.plaquette import plaquette
from stages.lqcd.solvers.cg import BatchedCG

SEED = 577
LIGHT = {
    1: (Lattice((32, 32, 32, 48)), 6.0, (0.002, 0.0005)),
    2: (Lattice((32, 32, 32, 64)), 5.7, (0.0005,)),
    3: (Lattice((16, 16, 16, 128)), 5.5, (0.0005,)),
    4: (Lattice((4, 4, 4, 8)), 5.7, (0.002, 0.0005)),
}
"""Extents, beta and masses; the last for a try on a CPU."""
WITHIN = {
    "single": "double",
    "double": "double",
    "double-single": "double-single",
    "double-half": "double-half",
}
"""The solver's precision; of right-hand sides in single 'double', that of b throughout."""
TOLERANCES = {"single": 1e-6, "double": 1e-10, "double-single": 1e-10, "double-half": 1e-10}
COLUMNS = ("precision", "N", "iterations", "ms", "from", "to", "ns", "fastest", "residual")


def main() -> None:
    """Print the table."""
    arguments = parsed()
    if any(arguments.light):
        light_masses(arguments)
        return
    thin, lattice = configuration(arguments)
    mean = plaquette(as_numpy(thin), lattice).total
    print(f"{arguments.machine.name}; {lattice}, plaquette {mean:.5f}, m = {arguments.mass:g}")
    table = PrintedTable(*COLUMNS)
    for rhs in arguments.rhs:
        A = NormalOperator(staggered(thin, lattice, rhs), arguments.mass)
        for precision in arguments.only:
            table.add(precision, rhs, *solves(arguments, A, precision, rhs))


def solves(arguments: argparse.Namespace, A: NormalOperator, precision: str, rhs: int) -> list[object]:
    """Iterations, times and residual of some equal solves after one that compiles."""
    operator = A.astype(np.complex64) if precision == "single" else A
    draw, shape = arguments.machine.xp.random.default_rng(SEED).standard_normal, (*A.shape, rhs)
    b = (draw(shape) + 1j * draw(shape)).astype(operator.dtype)
    solver = BatchedCG(TOLERANCES[precision], precision=WITHIN[precision])
    solution = solver.solve(operator, b)
    times = [
        arguments.machine.wall_seconds(lambda: solver.solve(operator, b)) for _ in range(arguments.repeats)
    ]
    wide = b.astype(A.dtype)
    remainder = as_numpy(wide - A.apply(solution.x.astype(A.dtype))).reshape(-1, rhs)
    norms = np.linalg.norm(as_numpy(wide).reshape(-1, rhs), axis=0)
    residual = float((np.linalg.norm(remainder, axis=0) / norms).max())
    milliseconds = [1e3 * seconds / rhs for seconds in (median(times), min(times), max(times))]
    each = 1e6 / solution.iterations / A.shape[0]
    nanoseconds = [each * time for time in milliseconds[:2]]
    return [solution.iterations, *milliseconds, *nanoseconds, residual]


def light_masses(arguments: argparse.Namespace) -> None:
    """Print the table of `--light`."""
    xp = arguments.machine.xp
    print(f"{arguments.machine.name}; {arguments.sweeps} sweeps")
    table = PrintedTable(
        *("lattice", "beta", "m", "source", "precision", "iterations", "replacements", "s", "status"),
        "residual",
    )
    for number in arguments.light:
        lattice, beta, masses = LIGHT[number]
        thin = quenched(lattice, "light", beta=beta, seed=SEED, sweeps=arguments.sweeps, xp=xp)
        dslash = staggered(thin, lattice, block=1)
        for mass in [mass for mass in masses if mass in arguments.masses]:
            A = NormalOperator(dslash, mass)
            for source in arguments.sources:
                b = xp.asarray(light_source(source, lattice))
                for precision in arguments.only:
                    BatchedCG(1e-8, 40, WITHIN[precision]).solve(A, b, on_failure="return")
                    solution = BatchedCG(1e-8, precision=WITHIN[precision]).solve(A, b, on_failure="return")
                    residual = b - A.apply(solution.x)
                    table.add(
                        *(str(lattice), beta, mass, source, precision, solution.iterations),
                        *(solution.extras["replacements"], solution.seconds, solution.status.name.lower()),
                        float(as_numpy(xp.linalg.norm(residual) / xp.linalg.norm(b))),
                    )


def light_source(kind: str, lattice: Lattice) -> NDArray:
    """A source ``[site, 3, 1]`` on the even sites: colour 0 at t = 0 or at one site, or normal noise."""
    shape = (lattice.half_volume, 3, 1)
    if kind == "noise":
        rng = np.random.default_rng(SEED)
        return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    b = np.zeros(shape, complex)
    b[lattice.coordinates(EVEN)[:, 3] == 0 if kind == "wall" else 0, 0] = 1
    return b


def parsed() -> argparse.Namespace:
    field = {"gauge": str, "tile": [1], "beta": 6.0, "sweeps": 50, "mass": 0.01}
    light = {"light": [0], "masses": [0.002, 0.0005], "sources": ["wall", "point", "noise"]}
    options = {**field, "rhs": [1, 16], "only": list(TOLERANCES), "repeats": 9, **light}
    return arguments_of(__doc__, lattice=(8, 8, 8, 8), machine="cpu", options=options)


if __name__ == "__main__":
    main()
