"""Rehearsal of the propagators' kernels, once and briefly: solves for a heavy quark on free links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from types import ModuleType

from pipeline import Node
from stages.ensemble.staggered_operator import free_links
from stages.lqcd.dirac.full_lattice import StaggeredOperator, StaggeredSchur
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS
from stages.lqcd.multigrid.levels import multigrid_of
from stages.lqcd.solvers.even_odd import EvenOdd, propagate
from stages.lqcd.solvers.named import MULTIGRID, POSITIVE, REGULAR, Solve
from stages.lqcd.solvers.recurrence import WIDTHS
from stages.lqcd.solvers.solution import column_blocks
from stages.lqcd.solvers.trial import solves_of
from stages.mesons.costs import chunk_columns
from stages.mesons.propagator import propagator, staggered_propagator
from stages.shared.costs import lattice_of
from stages.shared.rehearsal import MASS, Step, brief_solves, nodes_of, unit_links

Full = WilsonOperator | StaggeredOperator


def propagator_steps(nodes: Sequence[Node], xp: ModuleType) -> Iterator[Step]:
    """Solves in every block width of propagators."""
    for node in nodes_of(nodes, propagator):
        blocks = widths(chunk_columns(node.inputs[1]), node.parameters["solve"], tuple(REGULAR))
        yield from solve_steps(node, blocks, nodes, xp)


def staggered_steps(nodes: Sequence[Node], xp: ModuleType) -> Iterator[Step]:
    """Solves in every block width of staggered propagators."""
    for node in nodes_of(nodes, staggered_propagator):
        lattice = lattice_of(node)
        if not lattice:
            continue
        operator, solve, columns = node.inputs[0], node.parameters["solve"], chunk_columns(node.inputs[1])
        links = free_links(operator, lattice, xp)
        M = StaggeredOperator(StaggeredDslash(links, packing=operator.parameters["solves"].packing), MASS)
        solves = brief_solves(solve, tuple(POSITIVE), columns)
        for brief, block in product(solves, widths(columns, solve, tuple(POSITIVE))):
            yield partial(_propagate, M, EvenOdd(brief.of_positive(), StaggeredSchur), COLOURS, *block)


def solve_steps(
    node: Node, blocks: Sequence[tuple[int, int]], nodes: Sequence[Node], xp: ModuleType
) -> Iterator[Step]:
    """Solves as a node makes them, with each method that it may get, in each of the `blocks`.

    A block is so many right-hand sides, of which so many stay open for longer. nodes: of the workflow, with
    multigrid's setup.
    """
    lattice = lattice_of(node)
    if not lattice:
        return
    quark = node.inputs[0].parameters
    csw = quark["csw"] if isinstance(quark["csw"], (int, float)) else tuple(quark["csw"])
    links = wilson_links(unit_links(lattice, xp), lattice, boundary=quark["boundary"], csw=csw)
    M = WilsonOperator(WilsonDslash(links, packing=quark["solves"].packing), MASS)
    solves = brief_solves(node.parameters["solve"], tuple(REGULAR), max(block for block, _ in blocks))
    hierarchy = None
    if MULTIGRID in {solve.solver for solve in solves}:
        setup = next(each.parameters for each in nodes if "levels" in each.parameters)
        hierarchy = multigrid_of(setup["levels"], setup["seed"]).setup(M)
    for solve, block in product(solves, blocks):
        yield partial(_propagate, M, EvenOdd(solve.of_regular(hierarchy), WilsonSchur), COMPONENTS, *block)


def _propagate(M: Full, method: EvenOdd, components: int, block: int, still_open: int) -> None:
    xp = M.xp
    shape = (2, M.dslash.lattice.half_volume, components, block)
    sources = xp.random.default_rng(5).standard_normal(shape) + 0j
    sources[..., still_open:] = 0  # solved at once: the block becomes narrower
    propagate(M, sources, method, block)


def widths(total: int, solve: Solve, solvers: Sequence[str]) -> list[tuple[int, int]]:
    """Right-hand sides of the blocks that `total` make, each with those to which it may narrow."""
    blocks = {
        len(part) for each in solves_of(solve, solvers, total) for part in column_blocks(total, each.block)
    }
    return [(n, w) for n in sorted(blocks, reverse=True) for w in sorted({*WIDTHS, n}) if w <= n]
