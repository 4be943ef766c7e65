"""Rehearsal of the propagators' kernels, once and briefly: solves for a heavy quark on free links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from types import ModuleType

from pipeline import Node
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.multigrid.levels import multigrid_of
from stages.lqcd.solvers.even_odd import EvenOdd, propagate
from stages.lqcd.solvers.named import MULTIGRID, REGULAR, Solve
from stages.lqcd.solvers.recurrence import WIDTHS
from stages.lqcd.solvers.solution import column_blocks
from stages.lqcd.solvers.trial import solves_of
from stages.mesons.costs import chunk_columns
from stages.mesons.propagator import propagator
from stages.shared.costs import lattice_of
from stages.shared.rehearsal import MASS, TOLERANCE, Step, nodes_of, unit_links


def propagator_steps(nodes: Sequence[Node], xp: ModuleType) -> Iterator[Step]:
    """Solves in every block width of propagators."""
    for node in nodes_of(nodes, propagator):
        blocks = widths(chunk_columns(node.inputs[1]), node.parameters["solve"], tuple(REGULAR))
        yield from solve_steps(node, blocks, nodes, xp)


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
    quark, solve = node.inputs[0].parameters, node.parameters["solve"]
    csw = quark["csw"] if isinstance(quark["csw"], (int, float)) else tuple(quark["csw"])
    links = wilson_links(unit_links(lattice, xp), lattice, boundary=quark["boundary"], csw=csw)
    M = WilsonOperator(WilsonDslash(links, packing=quark["solves"].wilson_packing), MASS)
    tried = solves_of(solve, tuple(REGULAR), max(block for block, _ in blocks))
    solvers = dict.fromkeys((each.solver, each.precision) for each in tried)
    hierarchy = None
    if MULTIGRID in {name for name, _ in solvers}:
        setup = next(each.parameters for each in nodes if "levels" in each.parameters)
        hierarchy = multigrid_of(setup["levels"], setup["seed"]).setup(M)
    for (name, precision), (block, still_open) in product(solvers, blocks):
        solver = Solve(name, TOLERANCE, precision, solve.max_iterations).of_regular(hierarchy)
        yield partial(_propagate, M, EvenOdd(solver, WilsonSchur), block, still_open, xp)


def _propagate(M: WilsonOperator, method: EvenOdd, block: int, still_open: int, xp: ModuleType) -> None:
    shape = (2, M.dslash.lattice.half_volume, COMPONENTS, block)
    sources = xp.random.default_rng(5).standard_normal(shape) + 0j
    sources[..., still_open:] = 0  # solved at once: the block becomes narrower
    propagate(M, sources, method, block)


def widths(total: int, solve: Solve, solvers: Sequence[str]) -> list[tuple[int, int]]:
    """Right-hand sides of the blocks that `total` make, each with those to which it may narrow."""
    blocks = {
        len(part) for each in solves_of(solve, solvers, total) for part in column_blocks(total, each.block)
    }
    return [(n, w) for n in sorted(blocks, reverse=True) for w in sorted({*WIDTHS, n}) if w <= n]
