"""What solves for propagators ask of a GPU's kernels, once and briefly, for `quarkline tune`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import ModuleType

from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.multigrid.levels import multigrid_of
from stages.lqcd.solvers.even_odd import EvenOdd, propagate
from stages.lqcd.solvers.krylov import WIDTHS
from stages.lqcd.solvers.named import MULTIGRID, REGULAR, Solve
from workflows.shared.quark_sections import QuarkParameters

MASS = 2.0
TOLERANCE = 1e-9
"""Reached in few iterations, in several cycles where the inner precision is single."""


def solve_all(
    parameters: QuarkParameters,
    blocks: list[tuple[int, int]],
    lattice: Lattice,
    xp: ModuleType,
) -> Iterator[tuple[int, int]]:
    """Solve for a heavy quark on free links in each of the `blocks`: so many right-hand sides, of which so
    many stay open for longer. Yields solves done and solves in all.
    """
    quark, solves = parameters.quark, parameters.solves
    unit = xp.tile(xp.eye(3, dtype=complex), (4, 2, lattice.half_volume, 1, 1))
    links = wilson_links(unit, lattice, boundary=quark.boundary, csw=quark.clover)
    M = WilsonOperator(WilsonDslash(links), MASS)
    names = methods(parameters)
    jobs = list(product(names, blocks))
    hierarchy = None
    if MULTIGRID in names:
        hierarchy = multigrid_of(**parameters.multigrid.options(lattice)).setup(M)
    for number, (name, (block, still_open)) in enumerate(jobs, start=1):
        solve = Solve(name, TOLERANCE, solves.precision, solves.max_iterations)
        method = EvenOdd(solve.of_regular(hierarchy), WilsonSchur)
        shape = (2, lattice.half_volume, COMPONENTS, block)
        sources = xp.random.default_rng(5).standard_normal(shape) + 0j
        sources[..., still_open:] = 0  # solved at once: the block becomes narrower
        propagate(M, sources, method, block)
        yield number, len(jobs)


def methods(parameters: QuarkParameters) -> tuple[str, ...]:
    """Those that a run may ask for."""
    name = parameters.solves.solver
    return tuple(REGULAR) if name == "auto" else (name,)


def widths(total: int, block: int) -> list[tuple[int, int]]:
    """Right-hand sides of the blocks that `total` make, each with those to which it may narrow."""
    blocks = {min(block, total), total % block or block} if total > block else {total}
    return [(n, w) for n in sorted(blocks, reverse=True) for w in sorted({*WIDTHS, n}) if w <= n]
