"""Rehearsal of distillation's kernels: the Laplacian in the widths of the eigensolver, then solves, once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from types import ModuleType

from pipeline import Node
from stages.distillation.costs import columns_of, eigenvectors_of
from stages.distillation.current_insertion import current_insertion
from stages.distillation.laplace_eigenvectors import laplace_eigenvectors
from stages.distillation.perambulator import perambulator, sink_projection
from stages.lqcd.dirac.laplacian import SpatialHop, folded_laplacian
from stages.lqcd.dirac.staggered import SquaredDslash
from stages.lqcd.distillation.eigenvectors import COLUMNS, DTYPES
from stages.lqcd.kernels.gamma import SPINS
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.named import REGULAR
from stages.mesons.rehearsal import solve_steps, widths
from stages.shared.costs import lattice_of, options_of
from stages.shared.rehearsal import Step, nodes_of, unit_links


def eigensolver_steps(nodes: Sequence[Node], xp: ModuleType) -> Iterator[Step]:
    """The Laplacian on a chunk's slices, in every width."""
    for node in nodes_of(nodes, laplace_eigenvectors):
        lattice, options = lattice_of(node), options_of(node)
        if not lattice:
            continue
        x, y, z, _ = lattice.extents
        slices = Lattice((x, y, z, node.chunk["time"]))
        A = folded_laplacian(SpatialHop(unit_links(slices, xp), slices, DTYPES[options["precision"]]))
        vectors = options["vectors"]
        remainder = vectors % COLUMNS
        for width in sorted(
            {1, options["block"], min(COLUMNS, vectors), *([remainder] if remainder else [])}
        ):
            yield partial(_apply, A, width, xp)


def _apply(A: SquaredDslash, width: int, xp: ModuleType) -> None:
    A.apply(xp.ones((*A.shape, width), A.dtype))


def perambulator_steps(nodes: Sequence[Node], xp: ModuleType) -> Iterator[Step]:
    """Solves of a chunk of sources; currents are inserted between those of single slices."""
    solving = nodes_of(nodes, perambulator, sink_projection)
    if not solving:
        return
    node, insertions = solving[0], nodes_of(nodes, current_insertion)
    solved = {columns_of(node.inputs[2]), *(SPINS * eigenvectors_of(each.inputs[1]) for each in insertions)}
    solve = node.parameters["solve"]
    blocks = sorted({width for rhs in solved for width in widths(rhs, solve, tuple(REGULAR))}, reverse=True)
    yield from solve_steps(node, blocks, nodes, xp)
