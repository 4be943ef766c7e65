"""Rehearsal of the loops' kernels, once and briefly: solves of heavy quarks on free links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from pipeline import Node
from stages.ensemble.staggered_operator import free_links
from stages.loops.current_loops import current_loops, exact_loops, split_even_loops
from stages.loops.deflation_space import deflation_space
from stages.lqcd.dirac.staggered import SquaredDslash, StaggeredDslash
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.estimators.trace import CurrentLinks, LoopTrace
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.noise import Dilution
from stages.lqcd.solvers.named import POSITIVE
from stages.lqcd.solvers.recurrence import WIDTHS
from stages.lqcd.solvers.solution import column_blocks
from stages.lqcd.solvers.trial import solves_of
from stages.shared.costs import lattice_of
from stages.shared.rehearsal import MASS, Step, brief_solves, nodes_of

LOOPS = (current_loops, split_even_loops, exact_loops)


def loop_steps(nodes: Sequence[Node], xp: ModuleType) -> Iterator[Step]:
    """Make the links, look for modes, then solve and contract in every block width."""
    loops = nodes_of(nodes, *LOOPS)
    if not loops or not (lattice := lattice_of(loops[0])):
        return
    operator, solve = loops[0].inputs[0], loops[0].parameters["solve"]
    links = free_links(operator, lattice, xp)
    dslash = StaggeredDslash(links, packing=operator.parameters["solves"].packing)
    current = CurrentLinks(links, loops[0].parameters["current_links"])
    for node in nodes_of(nodes, deflation_space):
        yield partial(_find_modes, node.parameters["search"].block, dslash)
    solves = brief_solves(solve, tuple(POSITIVE), max(_columns(loops[0], lattice)))
    widths = [(n, w) for n in block_widths(loops, lattice) for w in sorted({*WIDTHS, n}) if w <= n]
    wave = xp.asarray(plane_wave(lattice, operator.parameters["boundary"]))[:, None, None]
    # the block is narrower from the start, or becomes so at once
    for brief, (n, still_open), converging in product(solves, widths, (0, wave)):
        trace = LoopTrace(dslash, current, MASS, brief.of_positive())
        yield partial(_contract, trace, n, still_open, converging, xp)


def _contract(trace: LoopTrace, n: int, still_open: int, converging: Array, xp: ModuleType) -> None:
    """A block of n right-hand sides, of which those after `still_open` converge at once."""
    sources = xp.random.default_rng(5).standard_normal((trace.lattice.half_volume, 3, n)) + 0j
    sources[..., still_open:] = converging
    trace.contract(EVEN, sources)


def _find_modes(block: int, dslash: StaggeredDslash) -> None:
    """One restart cycle of the eigensolver, for a single block of vectors."""
    lanczos = BlockLanczos(block, block, degree=4, max_restarts=1)
    lanczos.solve(SquaredDslash(dslash.for_many_products(), EVEN), on_failure="return")


def block_widths(loops: Sequence[Node], lattice: Lattice) -> list[int]:
    """Right-hand sides that nodes of loops solve together, from the widest on."""
    widths = set[int]()
    for node in loops:
        for count in _columns(node, lattice):
            for solve in solves_of(node.parameters["solve"], tuple(POSITIVE), count):
                widths |= {len(block) for block in column_blocks(count, solve.block)}
    return sorted(widths, reverse=True)


def _columns(node: Node, lattice: Lattice) -> list[int]:
    """Right-hand sides of a chunk, of each parity."""
    if node.stage.function is exact_loops:
        return [3 * lattice.half_volume]
    dilution = Dilution.parse(node.parameters["noise"].dilution)
    sources = node.chunk["noise"] * node.chunk["probe"]
    return [sources * len(dilution.partition(lattice, parity).subsets) for parity in (EVEN, ODD)]


def plane_wave(lattice: Lattice, boundary: str) -> NDArray[np.complex128]:
    """An eigenvector of the free normal operator on the even sites, ``[site]``: the lowest momentum."""
    turns = 0.5 if boundary == "antiperiodic" else 0.0
    times = np.arange(lattice.half_volume) // (lattice.half_volume // lattice.time_extent)
    return np.exp(2j * np.pi * turns * times / lattice.time_extent)
