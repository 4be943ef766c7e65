"""Stages of staggered mesons up to their solutions: sources of all operators, and M^-1 of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np

from pipeline import At, Dims, Keyed, stage
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.smeared_links import SmearedLinks
from stages.lqcd.dirac.application import staggered_application
from stages.lqcd.dirac.full_lattice import StaggeredOperator, StaggeredSchur
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.kernels.dispatch import Array, array_module_of
from stages.lqcd.kernels.fields import assign, side_by_side, zeros_like
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.deflation import DeflatedSolver, StaggeredDeflation
from stages.lqcd.solvers.even_odd import EvenOdd, propagate
from stages.lqcd.solvers.named import Solve
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, slice_sites
from stages.lqcd.spectroscopy.staggered_mesons import at_source, source_sign, staggered_source
from stages.lqcd.spectroscopy.staggered_operators import SpinTaste
from stages.mesons.staggered_costs import staggered_propagator_cost
from stages.shared.kernel_choices import recorded_choices
from stages.shared.second_path import check_fields, check_solutions, other_kernels
from stages.shared.solve_record import record_solves

LARGEST = 16.0
"""Bound of |D|."""


class StaggeredSources(NamedTuple):
    """Sources b of the quark, and O'^dag b of each operator for which it is another field.

    In the order of the operators (`stages.lqcd.spectroscopy.staggered_mesons`), complex128.
    """

    fields: Annotated[np.ndarray, Dims("parity", "site", "component", "source", "column")]
    """Components are colours; columns those of b, then those of each operator with solves of its own."""


class StaggeredPropagators(NamedTuple):
    """M^-1 times sources, M = 2 m + D in MILC's normalisation; lattice units, the lattice's own time."""

    propagator: Annotated[np.ndarray, Dims("parity", "site", "component", "source", "column")]
    """complex128; components and columns as those of the sources."""
    residual: Annotated[np.ndarray, Dims("source", "column")]
    """|b - A x| / |b| of the even sites' system, recomputed in double precision."""
    full_residual: Annotated[np.ndarray, Dims("source", "column")]
    """|b - M x| / |b| of the whole lattice."""
    iterations: Annotated[np.ndarray, Dims("source", "column")]
    """int64, of the block that a column was in."""


@stage(version="1", over=("config", "source"), transient=True)
def staggered_sources(
    gauge: GaugeLinks,
    links: SmearedLinks | None = None,
    *,
    at: At,
    operators: Sequence[str],
    seed: int | None = None,
) -> StaggeredSources:
    """Points, corner walls or noise on time slices, as coordinates say, and operators applied to them.

    ``x0y0z0t8`` is a point, ``t8`` a corner wall, ``t8n0`` Z2 noise with `seed`. links: of displacements;
    needed for operators that have links. operators: such as 'GX-G1'. Raises InputError.
    """
    lattice, label = gauge.lattice, str(at.one("config"))
    parsed, xp = [SpinTaste.parse(each) for each in operators], array_module_of(at.backend)
    fields = []
    for place in map(SourcePlace.parse, map(str, at["source"])):
        source = staggered_source(lattice, place, label, seed, xp)
        others = [
            at_source(each, source, links.links if links else None, lattice, place.time)
            for each in parsed
            if source_sign(each, place) is None
        ]
        fields.append(_on_lattice([source, *others], lattice, place.time))
    return StaggeredSources(side_by_side(fields))


@stage(
    version="1",
    over=("config", "source"),
    transient=True,
    keyed=Keyed(without=("max_iterations", "block")),
    cost=staggered_propagator_cost,
)
def staggered_propagator(
    operator: StaggeredDslash,
    sources: StaggeredSources,
    deflation: StaggeredDeflation | None = None,
    *,
    at: At,
    mass: float,
    solve: Solve,
) -> StaggeredPropagators:
    """M^-1 times all columns of a chunk's sources.

    mass: m of M = 2 m + D. solve: of 4 m^2 - D^2 on even sites, by a solver of
    `stages.lqcd.solvers.named.POSITIVE`; how columns share blocks is in no key. deflation: speeds up the
    solves. Raises InputError, and NotConverged where a solve misses its tolerance.
    """
    M = StaggeredOperator(operator.astype(np.complex128), mass)
    fields = sources.fields.reshape(*sources.fields.shape[:3], -1)
    with recorded_choices(at):
        solver = solve.of_positive()
        method = EvenOdd(DeflatedSolver(solver, deflation) if deflation else solver, StaggeredSchur)
        x, statistics = propagate(M, fields, method, solve.block, lambda *done: at.progress(*done))
    record_solves(at, solve, statistics, application=partial(staggered_application, operator))
    if at.again:
        with other_kernels(at):
            check_fields("sources", sources.fields, at.again("sources").fields)
            again = StaggeredOperator(at.again("operator").astype(np.complex128), mass)
            check_solutions(at, again, fields, x, statistics, 2 + LARGEST / mass)
    shape, widths = sources.fields.shape[3:], [len(block) for block in statistics.residual]
    return StaggeredPropagators(
        x.reshape(sources.fields.shape),
        np.concatenate(statistics.residual).reshape(shape),
        np.concatenate(statistics.full_residual).reshape(shape),
        np.repeat(statistics.iterations, widths).reshape(shape),
    )


def _on_lattice(slices: Sequence[Array], lattice: Lattice, time: int) -> Array:
    """Fields ``[1, parity, site of the slice, 3, column]`` side by side, ``[parity, site, 3, column]``."""
    first, columns = slices[0], slices[0].shape[-1]
    fields = zeros_like(first, (2, lattice.half_volume, first.shape[3], columns * len(slices)))
    for number, each in enumerate(slices):
        own = slice(number * columns, (number + 1) * columns)
        assign(fields[:, slice_sites(lattice, time), :, own], each[0])
    return fields
