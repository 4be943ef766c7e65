"""Stages of random walls: their sources, and connected correlators with the same by low modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Dims, FromParameter, Keyed, Resources, stage
from stages.connected.costs import wall_correlators_cost
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, contiguous, field_like, side_by_side
from stages.lqcd.kernels.gamma import COLOURS
from stages.lqcd.solvers.solution import column_blocks
from stages.lqcd.spectroscopy.connected import (
    antiquark_columns,
    random_wall,
    source_correlator,
    wall_columns,
    wall_time,
)
from stages.lqcd.spectroscopy.low_propagator import LowPropagator
from stages.lqcd.spectroscopy.vector_currents import vector_currents
from stages.mesons.costs import sources_cost
from stages.mesons.propagator import StaggeredPropagators
from stages.mesons.sources import StaggeredSources


class WallCorrelators(NamedTuple):
    """Estimates of C(t) by single random walls; traces over the slice, lattice units, t from the source.

    The sum over a wall's three columns, one a colour (`stages.lqcd.spectroscopy.connected`).
    """

    correlator: Annotated[np.ndarray, Dims("source", "operator", "time")]
    """complex128."""
    low: Annotated[np.ndarray, Dims("source", "operator", "time")]
    """The same estimate of the low modes' part, 0 where there are no modes."""
    source_time: Annotated[np.ndarray, Dims("source")]
    """int64, the wall's slice, drawn for each configuration."""
    residual: Annotated[np.ndarray, Dims("source", "column")]
    """Of the solutions: for b, then for the operators' sources in order."""
    full_residual: Annotated[np.ndarray, Dims("source", "column")]
    iterations: Annotated[np.ndarray, Dims("source", "column")]


@stage(version="1", over=("config", "source"), transient=True, cost=sources_cost)
def random_wall_sources(
    operator: StaggeredDslash, *, at: At, operators: Sequence[str], seed: int
) -> StaggeredSources:
    """Random walls b, and O epsilon b of each operator but the pion's, whose antiquark solves for b, too.

    A source's number names its noise and, with the seed and the configuration, its time. Raises InputError.
    """
    label, lattice, walls = str(at.one("config")), operator.lattice, []
    for number in map(int, at["source"]):
        time = wall_time(lattice, label, seed, number)
        walls.append(random_wall(lattice, time, label, seed, number, operator.xp))
    fields = [field_like(wall, (*wall.shape[:-1], wall_columns(operators))) for wall in walls]
    for field, wall in zip(fields, walls, strict=True):
        assign(field[..., :COLOURS], wall)
    own = antiquark_columns(operators)
    for current, columns in zip(vector_currents(operator.links, operators), own, strict=True):
        if columns.start:
            for field, wall in zip(fields, walls, strict=True):
                assign(field[..., columns], current.at_source(wall))
    return StaggeredSources(side_by_side(fields))


@stage(
    version="1",
    over=("config", "source"),
    resources=Resources(device=1),
    keyed=Keyed(chunk=True),
    labels={"operator": FromParameter("operators")},
    cost=wall_correlators_cost,
)
def wall_correlators(
    propagators: StaggeredPropagators,
    sources: StaggeredSources,
    operator: StaggeredDslash,
    low: LowPropagator | None = None,
    *,
    at: At,
    operators: Sequence[str],
    mass: float,
    seed: int,
    block: int,
) -> WallCorrelators:
    """C(t) of operators, the same at source and sink, by each wall of a chunk; and its part of low modes.

    operators, seed: those of the sources. mass: that of the solutions. block: right-hand sides that were
    solved together, on which what sloppy solves leave depends. low: that of the meson fields; without, `low`
    of the result is 0. Raises InputError.
    """
    lattice, numbers = operator.lattice, list(map(int, at["source"]))
    times = [wall_time(lattice, str(at.one("config")), seed, number) for number in numbers]
    solved = [propagators.propagator] + ([_low(low, mass, sources.fields, block)] if low else [])
    shape = (2, len(numbers), len(operators), lattice.time_extent)
    measured = np.zeros(shape, complex)
    pairs = zip(vector_currents(operator.links, operators), antiquark_columns(operators), strict=True)
    for place, (current, own) in enumerate(pairs):
        for kind, fields in enumerate(solved):
            for number, time in enumerate(times):
                quark, antiquark = (contiguous(fields[..., number, each]) for each in (slice(COLOURS), own))
                columns = source_correlator(quark, antiquark, current, time)
                measured[kind, number, place] = columns.sum(axis=0)
    noise = "random walls, Z4 noise on every site and colour of a slice"
    at.record(normalisation="slice trace", sources=noise)
    of_solves = propagators.residual, propagators.full_residual, propagators.iterations
    full, part = measured
    return WallCorrelators(full, part, np.array(times), *map(np.asarray, of_solves))


def _low(low: LowPropagator, mass: float, fields: Array, block: int) -> Array:
    """G_L of sources ``[parity, site, 3, source, column]``, a block of columns at a time."""
    out = field_like(fields)
    for number in range(fields.shape[3]):
        for columns in column_blocks(fields.shape[4], block):
            part = slice(columns.start, columns.stop)
            assign(out[..., number, part], low.apply(mass, contiguous(fields[..., number, part])))
    return out
