"""Work of stages for forecasts of time: passes over fields with their bytes, expected iterations of solvers.

Expected iterations need only be right in how they depend on lattice, mass, tolerance and right-hand sides:
records of earlier chunks tell the factor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, log, prod, sqrt
from typing import Any

from pipeline import Pass
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.sizes import COMPLEX, MATRIX, half_field_bytes, links_bytes
from stages.lqcd.multigrid.levels import multigrid_of
from stages.lqcd.multigrid.setup import LevelParameters
from stages.lqcd.solvers.named import Solve

NARROWER = {"double": 1.0, "double-single": 0.5, "double-half": 0.4}
"""Size of the numbers that a solver iterates on, of double precision; of half by what an iteration takes."""

LARGEST = 20.0
"""Of the eigenvalues of -D^2 in MILC's normalisation."""

MODES, BLOCK_MODES = 26.0, 82.0
"""Of -D^2 per mode and site: the eigenvalue up to which k exact vectors, and a block of N columns, deflate is
(26 k + 82 N) / V. Of 8^3 x 16 at beta = 5.7, docs/notes/solver_iterations.md."""

STAGGERED_FIELDS, WILSON_FIELDS = 12, 20
"""Fields that an iteration reads or writes, of one parity."""

CONTRACTIONS = 12
"""Fields that are read or written for a right-hand side beside its solve."""


HEATBATH = 30
"""Times that a heat-bath sweep, whose time is arithmetic, moves the links' bytes at the memory's speed."""


def links_work(lattice: Lattice, passes: int) -> tuple[Pass, ...]:
    """Passes over all links, as smearing makes them."""
    return (Pass("links", passes, 2.0 * links_bytes(lattice)),)


def heatbath_work(lattice: Lattice, sweeps: int) -> tuple[Pass, ...]:
    """Sweeps of heat bath and over-relaxation."""
    return (Pass("sweeps", sweeps, 2.0 * HEATBATH * links_bytes(lattice)),)


def staggered_iterations(
    lattice: Lattice, mass: float, solve: Solve, columns: int, vectors: int = 0
) -> float:
    """Iterations of conjugate gradients for 4 m^2 - D^2: ln(2 / tolerance) / 2 times sqrt(condition).

    A block finds the lowest modes as it goes, and deflated ones are gone.
    """
    block = columns if solve.solver == "block_cgrq" and columns > 1 else 0
    lowest = 4 * mass**2 + (MODES * vectors + BLOCK_MODES * block) / lattice.volume
    return log(2 / solve.tolerance) / 2 * sqrt((LARGEST + 4 * mass**2) / lowest)


def staggered_work(
    lattice: Lattice, mass: float, solve: Solve, columns: int, directions: int, vectors: int = 0
) -> tuple[Pass, ...]:
    """Solves of so many right-hand sides on one parity, in blocks, and what is done with the solutions."""
    iterations = staggered_iterations(lattice, mass, solve, min(solve.block, columns), vectors)
    alike = ("staggered", solve.solver, solve.precision, mass, solve.tolerance, vectors > 0)
    fields = half_field_bytes(lattice, COLOURS), STAGGERED_FIELDS
    return _solves(directions * MATRIX * lattice.volume, *fields, solve, columns, iterations, alike)


def _solves(
    links: int,
    field: int,
    fields: int,
    solve: Solve,
    columns: int,
    iterations: float,
    alike: tuple[object, ...],
) -> tuple[Pass, ...]:
    """Iterations of blocks, which move the links and so many fields a column, and passes over solutions."""
    block = min(solve.block, columns)
    moved = NARROWER[solve.precision] * (links + fields * field * block)
    return (
        Pass("iterations", ceil(columns / block) * iterations, moved, "iterations", alike),
        Pass("solutions", columns, 2.0 * CONTRACTIONS * field),
    )


APPLICATIONS = 270
"""Of -D^2 in an eigensolve, for each vector: docs/notes/deflation.md, 256 vectors of 24^3 x 32."""


def eigensolve_work(lattice: Lattice, vectors: int, directions: int, tolerance: float) -> tuple[Pass, ...]:
    """Applications of -D^2 to single vectors by block Lanczos."""
    moved = float(
        directions * MATRIX * lattice.volume + STAGGERED_FIELDS * half_field_bytes(lattice, COLOURS)
    )
    return (Pass("applications", APPLICATIONS * vectors, moved, "matvecs", ("lanczos", tolerance)),)


MODE_FIELDS = 30
"""Fields of one parity that are read or written for the currents of a mode: two hops, two currents, sums."""


def low_modes_work(lattice: Lattice, vectors: int, directions: int, slab: int) -> tuple[Pass, ...]:
    """Currents of modes, so many at a time, and the rotation of all vectors to those of a slab."""
    field = half_field_bytes(lattice, COLOURS)
    links = directions * MATRIX * lattice.volume
    return (
        Pass("modes", vectors, float(links / slab + MODE_FIELDS * field)),
        Pass("rotations", vectors * ceil(vectors / slab), float(field)),
    )


def loading_work(nbytes: int) -> tuple[Pass, ...]:
    """Results that are read from the store to stay on a worker."""
    return (Pass("loads", 1, float(nbytes)),)


GALERKIN = 10
"""Products with a grid's operator that the operator of the grid below is made of: hops, and restrictions."""


def multigrid_work(lattice: Lattice, levels: Sequence[Mapping[str, Any]]) -> tuple[Pass, ...]:
    """Products with the operators of all grids of a setup, those of the finest one apart, on all vectors.

    Every refinement is a cycle, after which the hierarchy is built again.
    """
    finest, *_ = chosen = multigrid_of(levels, 0).levels
    builds = 1 + finest.refinements
    half = half_field_bytes(lattice, COMPONENTS)
    moved = NARROWER["double-single"] * (8 * MATRIX * lattice.volume + WILSON_FIELDS * half * finest.vectors)
    fine = finest.relaxation.steps + GALERKIN * builds + (_cycle_steps(finest) + 2) * finest.refinements
    passes, sites = [Pass("fine products", fine, moved)], lattice.volume
    for number, (level, below) in enumerate(zip(chosen, [*chosen[1:], None], strict=True), start=1):
        sites, components = sites // prod(level.aggregate), 2 * level.vectors
        moved = COMPLEX // 2 * sites * components * (9.0 * components + 2 * level.vectors)
        cycles = level.steps * finest.refinements
        count = cycles * (_cycle_steps(below) + 2) if below else cycles
        count += builds * (below.relaxation.steps + GALERKIN) if below else 0
        passes.append(Pass(f"products of grid {number}", max(1, count), moved))
    return tuple(passes)


def _cycle_steps(level: LevelParameters) -> int:
    return level.post.steps


def contraction_work(lattice: Lattice, components: int, columns: int, products: int) -> tuple[Pass, ...]:
    """Products of solutions at all sites, so many for each right-hand side."""
    return (Pass("products", products, 2.0 * half_field_bytes(lattice, components) * columns),)


def wilson_work(lattice: Lattice, mass: object, solve: Solve, columns: int) -> tuple[Pass, ...]:
    """Even-odd solves of so many right-hand sides with M, in blocks.

    Iterations are as many as the logarithm of the tolerance, times a factor that only records tell.
    """
    alike = ("wilson", solve.solver, solve.precision, str(mass), solve.tolerance)
    fields = half_field_bytes(lattice, COMPONENTS), WILSON_FIELDS
    return _solves(8 * MATRIX * lattice.volume, *fields, solve, columns, log(2 / solve.tolerance), alike)


def together(parts: Sequence[tuple[Pass, ...]]) -> tuple[Pass, ...]:
    """The passes of several solves as one each, whose count is theirs together."""
    return tuple(
        replace(
            first, count=first.count + sum(each.count for each in others), alike=(*first.alike, len(parts))
        )
        for first, *others in zip(*parts, strict=True)
    )
