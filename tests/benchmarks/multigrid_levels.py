"""Time and memory of the parts of a multigrid hierarchy: tables of `tests/benchmarks/multigrid_solves.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from script import PrintedTable
from stages.ensemble.wilson_operator import CLOVER_BYTES, operator_terms
from stages.lqcd.kernels import stream
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import converted, zeros_like
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.kernels.link_forms import WIDE
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.sizes import half_field_bytes
from stages.lqcd.multigrid.aggregates import Aggregates, Grid
from stages.lqcd.multigrid.coarse_operator import CoarseOperator
from stages.lqcd.multigrid.hierarchy import Cycle, Hierarchy, Level
from stages.lqcd.multigrid.levels import LevelNumbers, hierarchy_terms, loaded_terms
from stages.lqcd.multigrid.smoothers import Smoother
from stages.lqcd.multigrid.wilson import FineWilson
from stages.lqcd.solvers.gcr import HalfDirections, WholeDirections
from stages.lqcd.solvers.named import HALF_DIRECTION
from workflows.benchmarks.machine import Machine, fastest

CALLS = 10
"""Times more that a part is in the longer one of two graphs."""


class Counted:
    """A smoother that counts its calls: one in each cycle of its grid."""

    def __init__(self, smoother: Smoother) -> None:
        self.smoother, self.steps, self.calls = smoother, smoother.steps, 0

    def improve(self, A: Any, b: Array, x: Array) -> None:
        self.calls += 1
        self.smoother.improve(A, b, x)


def by_level(machine: Machine, hierarchy: Hierarchy, b: Array, iteration: float) -> None:
    """Print what each grid takes of an iteration of so many seconds, in milliseconds."""
    x, levels, last = converted(b, hierarchy.dtype), hierarchy.cycle.levels, hierarchy.cycle.coarsest
    cycles = [Cycle(levels[number:], last) for number in range(len(levels))]
    counts = [Counted(level.smoother) for level in levels]
    hierarchy.cycle.with_smoothers(counts).apply(x)
    table = PrintedTable("grid", "cycles", "smoother", "transfer", "rest", "together", "of an iteration")
    above = part_seconds(machine, cycles[:1], lambda r, defect, coarse: cycles[0].apply(r), x)
    table.add("-", *[None] * 4, 1e3 * (iteration - above), 1 - above / iteration)
    for number, (level, count) in enumerate(zip(levels, counts, strict=True)):
        smoother, transfer, below = (
            count.calls * part_seconds(machine, cycles[: number + 1], part, x)
            for part in (
                partial(smoothed, level),
                partial(transferred, level),
                partial(solved_below, cycles[number]),
            )
        )
        together, above = above - below, below
        times = smoother, transfer, together - smoother - transfer, together
        table.add(level.A.grid, count.calls, *(1e3 * each for each in times), together / iteration)
    table.add(last.A.grid, *[None] * 4, 1e3 * above, above / iteration)


def smoothed(level: Level, r: Array, defect: Array, coarse: Array) -> Array:
    """A cycle's smoothing, of a field of zeros, which it makes."""
    y = zeros_like(r)
    level.smoother.improve(level.A.operator, r, y)
    return y


def transferred(level: Level, r: Array, defect: Array, coarse: Array) -> Array:
    """A cycle's restriction and prolongation, to a field of zeros, which it makes."""
    level.transfer.restrict(defect)
    y = zeros_like(r)
    level.transfer.add_prolonged(coarse, y)
    return y


def solved_below(cycle: Cycle, r: Array, defect: Array, coarse: Array) -> Array:
    """A cycle's solve on the grid below."""
    return cycle.solve_below(coarse)


def part_seconds(
    machine: Machine, cycles: Sequence[Cycle], part: Callable[[Array, Array, Array], Array], x: Array
) -> float:
    """Seconds of a part of a cycle on the grid of the last of these cycles.

    part: of the residual of S there, that of A, and this one restricted. They come from the residual x on the
    finest grid in the same graph, so that they lie where those of a cycle do.
    """

    def run(calls: int, r: Array) -> Array:
        coarse = r
        for number, cycle in enumerate(cycles):
            level = cycle.levels[0]
            r = level.A.prepare(coarse)[0] if number else r
            defect = level.A.defect(r)
            coarse = level.transfer.restrict(defect)
        for _ in range(calls):
            result = part(r, defect, coarse)
        return result

    def seconds(calls: int) -> float:
        return fastest(machine, partial(stream.replayed(partial(run, calls), machine.xp), x), 4)

    return (seconds(1 + CALLS) - seconds(1)) / CALLS


def by_term(
    machine: Machine,
    hierarchy: Hierarchy,
    b: Array,
    levels: Sequence[LevelNumbers],
    precision: str,
    restart: int,
) -> None:
    """Print bytes of a hierarchy, its operator and the directions of GCR, after a solve of b."""
    table, seen = PrintedTable("grid", "what", "bytes", "plan"), dict[int, object]()

    def add(grid: Grid, what: str, planned: int | None, *things: object) -> None:
        table.add(grid, what, held(things, machine.xp.ndarray, seen), planned)

    M, finest, last = hierarchy.system.M, hierarchy.cycle.levels[0].A, hierarchy.cycle.coarsest
    assert isinstance(finest, FineWilson)
    clover = 2 if M.mu else int(M.links.csw is not None)
    planned = operator_terms(M.lattice, precision, WIDE, clover)
    planned["clover term"] += clover * CLOVER_BYTES * M.lattice.half_volume  # A of multigrid, in single
    of = {"links: fields": M.links.links, "links: double": M.dslash, "links: single": finest.M.dslash}
    for what, thing in {**of, "clover term": (M, finest)}.items():
        add(finest.grid, what, planned[what], thing)
    kept = HalfDirections if precision == "double-half" else WholeDirections
    r = converted(b, np.complex128 if precision == "double" else np.complex64)
    blocks = {"double": 2, "double-single": 1, "double-half": HALF_DIRECTION}[precision]
    field = half_field_bytes(M.lattice, COMPONENTS) * b.shape[-1]
    add(finest.grid, f"{restart} directions of GCR", int(field * blocks * restart), kept(r, restart))
    below = [*(level.A for level in hierarchy.cycle.levels[1:]), last.A]
    for number, (level, A) in enumerate(zip(hierarchy.cycle.levels, below, strict=True), 1):
        assert isinstance(A, CoarseOperator) and level.prolongation is not None
        vectors, single = added(hierarchy_terms, M.lattice, levels[:number])
        ordered, matrices = added(loaded_terms, M.lattice, levels[:number])
        add(level.A.grid, "near-null vectors: of the setup", vectors, level.prolongation.vectors)
        add(level.A.grid, "near-null vectors: in the orders of cycles", ordered, level.transfer)
        add(A.grid, "coarse matrices: in single", single, A.diagonal, A.links)
        bits, names = ("16 bits", ("_scaled", "_even_diagonal")) if A.even else ("single", ("_packed",))
        packed = [vars(A).get(name) for name in names]
        add(A.grid, f"coarse matrices: packed in {bits}", matrices - single, packed)
        add(A.grid, "coarse matrices: packed for the setup", None, A)
    add(last.A.grid, "inverse", None, last)


def added(
    terms: Callable[..., dict[str, int]], lattice: Lattice, levels: Sequence[LevelNumbers]
) -> NDArray[np.int64]:
    """Planned bytes of near-null vectors and coarse operators that the last of some levels adds."""
    before = list(terms(lattice, levels[:-1]).values()) if levels[:-1] else [0, 0]
    return np.subtract(list(terms(lattice, levels).values()), before)


def held(thing: Any, array: Any, seen: dict[int, object]) -> int:
    """Bytes of the arrays of a thing and of what it is made of, but for those that were seen before."""
    while isinstance(thing, array) and isinstance(thing.base, array):
        thing = thing.base
    if id(thing) in seen or isinstance(thing, (Lattice, Grid, Aggregates, ModuleType, type)):
        return 0
    seen[id(thing)] = thing  # alive, so that no other has its number
    if isinstance(thing, array):
        return int(thing.nbytes)
    parts = thing.values() if isinstance(thing, dict) else thing if isinstance(thing, (list, tuple)) else ()
    return sum(held(each, array, seen) for each in (*parts, *getattr(thing, "__dict__", {}).values()))
