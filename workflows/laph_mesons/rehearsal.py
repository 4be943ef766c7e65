"""What a run of the workflow `laph_mesons` asks of a GPU's kernels, once, for `quarkline tune`."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from stages.lqcd.dirac.laplacian import FoldedLaplacian, SpatialHop
from stages.lqcd.distillation.eigenvectors import COLUMNS, DTYPES
from stages.lqcd.kernels.gamma import SPINS
from stages.lqcd.lattice.geometry import Lattice
from workflows.laph_mesons.schema import LaphParameters
from workflows.shared.quark_rehearsal import methods, solve_all, widths


def rehearse(parameters: LaphParameters, lattice: Lattice, xp: ModuleType) -> Iterator[tuple[int, int]]:
    """The Laplacian in the widths of the eigensolver, then solves. Yields steps done and steps in all."""
    section, solves = parameters.distillation, parameters.solves
    x, y, z, _ = lattice.extents
    slices = Lattice((x, y, z, section.slices or lattice.time_extent))
    unit = xp.tile(xp.eye(3, dtype=complex), (4, 2, slices.half_volume, 1, 1))
    A = FoldedLaplacian(SpatialHop(unit, slices, DTYPES[section.precision]))
    rest = section.vectors % COLUMNS
    columns = sorted({1, section.block, min(COLUMNS, section.vectors), *([rest] if rest else [])})
    # of a chunk of sources; currents are inserted between those of single slices
    solved = {parameters.columns(lattice), *([SPINS * section.vectors] if parameters.insertions else [])}
    blocks = sorted({width for rhs in solved for width in widths(rhs, solves.block)}, reverse=True)
    total = len(columns) + len(blocks) * len(methods(parameters))
    for number, width in enumerate(columns, start=1):
        A.apply(xp.ones((*A.shape, width), A.dtype))
        yield number, total
    for number, _ in enumerate(solve_all(parameters, blocks, lattice, xp), start=len(columns) + 1):
        yield number, total
