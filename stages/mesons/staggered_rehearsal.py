"""Rehearsal of staggered propagators' kernels, once and briefly: solves for a heavy quark on free links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from types import ModuleType

from pipeline import Node
from stages.ensemble.staggered_operator import action_of
from stages.lqcd.dirac.full_lattice import StaggeredOperator, StaggeredSchur
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.kernels.gamma import COLOURS
from stages.lqcd.solvers.even_odd import EvenOdd, propagate
from stages.lqcd.solvers.named import POSITIVE, Solve
from stages.lqcd.solvers.trial import solves_of
from stages.mesons.rehearsal import widths
from stages.mesons.staggered_costs import chunk_columns
from stages.mesons.staggered_propagator import staggered_propagator
from stages.shared.costs import lattice_of
from stages.shared.rehearsal import MASS, TOLERANCE, Step, nodes_of, unit_links


def staggered_steps(nodes: Sequence[Node], xp: ModuleType) -> Iterator[Step]:
    """Solves in every block width of staggered propagators."""
    for node in nodes_of(nodes, staggered_propagator):
        lattice = lattice_of(node)
        if not lattice:
            continue
        operator, solve = node.inputs[0], node.parameters["solve"]
        action = action_of(operator)
        options = {name: operator.parameters[name] for name in ("boundary", *action.options)}
        links = action.links(unit_links(lattice, xp), lattice, **options)
        dslash = StaggeredDslash(links, packing=operator.parameters["solves"].packing)
        M = StaggeredOperator(dslash, MASS)
        columns = chunk_columns(node)
        tried = solves_of(solve, tuple(POSITIVE), columns)
        for name, precision in dict.fromkeys((each.solver, each.precision) for each in tried):
            solver = Solve(name, TOLERANCE, precision, solve.max_iterations).of_positive()
            for block, still_open in widths(columns, solve, tuple(POSITIVE)):
                yield partial(_propagate, M, EvenOdd(solver, StaggeredSchur), block, still_open, xp)


def _propagate(M: StaggeredOperator, method: EvenOdd, block: int, still_open: int, xp: ModuleType) -> None:
    shape = (2, M.dslash.lattice.half_volume, COLOURS, block)
    sources = xp.random.default_rng(5).standard_normal(shape) + 0j
    sources[..., still_open:] = 0  # solved at once: the block becomes narrower
    propagate(M, sources, method, block)
