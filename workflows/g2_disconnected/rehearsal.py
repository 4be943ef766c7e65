"""Everything that a run of the workflow asks of a GPU, once and briefly, for `quarkline tune`.

Solves of heavy quarks on free links: kernels depend on extents, precisions and block widths, not on values.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from stages.ensemble.staggered_operator import ACTIONS
from stages.lqcd.dirac.staggered import SquaredDslash, StaggeredDslash
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.estimators.trace import LoopTrace, current_links
from stages.lqcd.gauge.hisq import StaggeredLinks
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.noise import Dilution
from stages.lqcd.solvers.krylov import WIDTHS
from stages.lqcd.solvers.named import POSITIVE, Solve
from stages.lqcd.solvers.solution import column_blocks
from workflows.g2_disconnected.schema import DeflationSection, G2Parameters, alternatives

MASS = 2.0
TOLERANCE = 1e-9
"""Reached in some twenty iterations, in several cycles where the inner precision is single."""


def rehearse(parameters: G2Parameters, lattice: Lattice, xp: ModuleType) -> Iterator[tuple[int, int]]:
    """Make the links, look for modes, then solve and contract in every block width.

    Yields solves done and solves in all.
    kernels: those for arrays of `xp`, `numpy` or `cupy`.
    """
    links = free_links(parameters, lattice, xp)
    solves = parameters.solves
    dslash = StaggeredDslash(links, np.complex128)
    current = current_links(links, parameters.current.links)
    if parameters.deflation:
        _find_modes(parameters.deflation, dslash, xp)
    names = tuple(POSITIVE) if solves.solver == "auto" else (solves.solver,)
    widths = [(n, w) for n in block_widths(parameters, lattice) for w in sorted({*WIDTHS, n}) if w <= n]
    wave = xp.asarray(plane_wave(lattice, parameters.links.boundary))[:, None, None]
    # the block is narrower from the start, or becomes so at once
    jobs = list(product(names, widths, (0, wave)))
    for number, (name, (n, still_open), converging) in enumerate(jobs, start=1):
        solve = Solve(name, TOLERANCE, solves.precision, solves.max_iterations)
        trace = LoopTrace(dslash, current, MASS, solve.of_positive())
        sources = xp.random.default_rng(5).standard_normal((lattice.half_volume, 3, n)) + 0j
        sources[..., still_open:] = converging
        trace.contract(EVEN, sources)
        yield number, len(jobs)


def _find_modes(section: DeflationSection, dslash: StaggeredDslash, xp: ModuleType) -> None:
    """One restart cycle of the eigensolver, for a single block of vectors."""
    B, block = SquaredDslash(dslash, EVEN), section.block
    lanczos = BlockLanczos(block, block, degree=4, max_restarts=1)
    lanczos.solve(B, xp, on_failure="return")


def block_widths(parameters: G2Parameters, lattice: Lattice) -> list[int]:
    """Right-hand sides that a run solves together, from the widest on."""
    solves, columns = parameters.solves, set[int]()
    for noise in (parameters.noise, *(changed.noise for _, changed in alternatives(parameters))):
        dilution, sources = Dilution.parse(noise.dilution.options()), noise.chunk * noise.probe_chunk
        columns |= {sources * len(dilution.partition(lattice, parity).subsets) for parity in (EVEN, ODD)}
    if parameters.exact:
        columns.add(3 * lattice.half_volume)
    return sorted(
        {len(block) for count in columns for block in column_blocks(count, solves.block)}, reverse=True
    )


def plane_wave(lattice: Lattice, boundary: str) -> NDArray[np.complex128]:
    """An eigenvector of the free normal operator on the even sites, ``[site]``: the lowest momentum."""
    turns = 0.5 if boundary == "antiperiodic" else 0.0
    times = np.arange(lattice.half_volume) // (lattice.half_volume // lattice.time_extent)
    return np.exp(2j * np.pi * turns * times / lattice.time_extent)


def free_links(parameters: G2Parameters, lattice: Lattice, xp: ModuleType) -> StaggeredLinks:
    """Links of the workflow's action from unit gauge links."""
    unit = xp.tile(xp.eye(3, dtype=complex), (4, 2, lattice.half_volume, 1, 1))
    section = parameters.links
    action = ACTIONS[section.action]
    options = section.model_dump(include={"boundary", *action.options})
    return action.links(unit, lattice, **options)
