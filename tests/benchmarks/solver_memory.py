"""Blocks of right-hand sides that solvers take of a GPU beside b, by the mark of CuPy's pool.

    python tests/benchmarks/solver_memory.py [--lattice 16 16 16 16] [--rhs 12] [--precision double]

A block is the right-hand sides in double on one parity. Operators, hierarchy, b, and what an operator keeps
between two hops are there before. Stated: `Workspace` of the solver without b.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline.worker.memory import device_pool
from script import PrintedTable, arguments_of, quenched, staggered, wilson
from stages.lqcd.dirac.staggered import NormalOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.multigrid.aggregates import random_fields
from stages.lqcd.multigrid.levels import multigrid_of
from stages.lqcd.solvers.named import MULTIGRID, POSITIVE, PRECISIONS, REGULAR, Solve, workspace_of
from workflows.shared.quark_sections import MultigridSection

MASS, TOLERANCE = 0.3, 1e-8


def blocks_of(system: Any, solve: Solve, like: Any, hierarchy: Any) -> float:
    """Highest mark of the pool while a block is solved for, above what it held before, in blocks."""
    pool = device_pool("cuda")
    assert pool is not None
    positive = isinstance(system, NormalOperator)
    solver: Any = solve.of_positive() if positive else solve.of_regular(hierarchy)
    pool.release_unused()
    b = random_fields((*system.shape, solve.block), np.complex128, like, 5)
    for precision in (np.complex64, np.complex128):  # packs links and matrices
        system.astype(precision).apply(b.astype(precision))
    pool.release_unused()
    pool.restart()
    before = pool.bytes
    solver.solve(system, b)
    return (pool.bytes - before) / b.nbytes


def main() -> None:
    """Print the table of all solvers."""
    options: dict[str, Any] = {"rhs": [12], "precision": list(PRECISIONS), "solvers": [*POSITIVE, *REGULAR]}
    arguments = arguments_of(__doc__, lattice=(16, 16, 16, 16), machine="cuda", options=options)
    lattice, xp = arguments.lattice, arguments.machine.xp
    thin = quenched(lattice, "memory", beta=6.0, seed=31, sweeps=2, xp=xp)
    schur = WilsonSchur(wilson(thin, lattice, MASS, 1.0))
    normal = NormalOperator(staggered(thin, lattice), MASS)
    wanted, section = MULTIGRID in arguments.solvers, MultigridSection()
    hierarchy = multigrid_of(section.levels_on(lattice), section.seed).setup(schur.M) if wanted else None
    table = PrintedTable("system", "solver", "precision", "N", "stated", "measured")
    systems: list[tuple[Any, Mapping[str, Any]]] = [(normal, POSITIVE), (schur, REGULAR)]
    for system, known in systems:
        for name in (each for each in known if each in arguments.solvers):
            for precision in arguments.precision:
                for n in arguments.rhs:
                    solve = Solve(name, TOLERANCE, precision, block=n)
                    stated = workspace_of(name, known).on_device(precision) - 1
                    measured = blocks_of(system, solve, thin, hierarchy)
                    table.add(type(system).__name__, name, precision, n, stated, measured)


if __name__ == "__main__":
    main()
