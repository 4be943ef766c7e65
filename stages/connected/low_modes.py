"""Stages of the low part of connected correlators: meson fields of eigenvectors, and LL of all sources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from pipeline import At, Chunks, Dims, FromParameter, Keyed, Resources, stage
from stages.connected.costs import HELD, WIDTHS, low_low_cost, low_propagator_cost, meson_fields_cost
from stages.lqcd.solvers.deflation import StaggeredSpace
from stages.lqcd.solvers.space import Space
from stages.lqcd.spectroscopy.low_propagator import LowPropagator, mode_weights
from stages.lqcd.spectroscopy.meson_fields import REST, by_source_time, meson_field_rows, rows_traced
from stages.lqcd.spectroscopy.mesons import Momentum
from stages.lqcd.spectroscopy.vector_currents import hops_of, vector_currents

OPERATOR = {"operator": FromParameter("operators")}


class MesonFieldRows(NamedTuple):
    """Rows m of X_t[m, n] = phi_m^dag P_t O phi_n, without denominators: good for every mass; lattice units.

    phi: modes v on even sites and their odd partners w (`stages.lqcd.spectroscopy.meson_fields`).
    """

    meson_field: Annotated[
        np.ndarray,
        Dims("operator", "parity", "time", "row", "eigenvector", pieces={"operator": 1, "parity": 1}),
    ]
    """complex128; parity: that of phi_m."""
    eigenvalue: Annotated[np.ndarray, Dims("row")]
    """|D_oe v_m|^2 of the unit vector v_m, float64."""


class LowLow(NamedTuple):
    """The part of C(t) that low modes carry, of all sources; a trace over the slice, lattice units."""

    low_low: Annotated[np.ndarray, Dims("operator", "time")]
    """Mean over source times, float64."""


@stage(
    version="1",
    over=("config",),
    transient=True,
    resident=True,
    keyed=Keyed(later=("ranks",)),
    cost=low_propagator_cost,
)
def low_propagator(
    deflation: StaggeredSpace, *, at: At, ranks: tuple[int, ...] | None = None
) -> LowPropagator:
    """The propagator of the vectors of a deflation as they are stored, for every mass, where it is used.

    Meson fields and what they leave of a correlator must have the same one. ranks: those of the vectors,
    from 0, all unless given. Raises InputError.
    """
    vectors = deflation.even.vectors
    unknown = np.zeros(vectors.shape[-1])
    low = LowPropagator.of(deflation.dslash, Space.of_eigenpairs(unknown, vectors, unknown))
    return low if ranks is None else low.chosen(ranks)


@stage(
    version="1",
    over=("config", "row"),
    resources=Resources(device=1),
    keyed=Keyed(later=("momentum",)),
    labels={**OPERATOR, "parity": ("even", "odd")},
    cost=meson_fields_cost,
)
def meson_fields(
    low: LowPropagator, *, at: At, operators: Sequence[str], momentum: Momentum = REST
) -> MesonFieldRows:
    """Rows of the meson fields of operators such as 'GX-G1', all in one pass over the modes.

    operators: names of `stages.lqcd.spectroscopy.vector_currents.LABELS`. momentum: p of exp(-ipx) O, in
    units of 2 pi / L. Raises InputError.
    """
    rows = range(int(at["row"][0]), int(at["row"][-1]) + 1)
    currents = list(vector_currents(low.dslash.links, operators))
    width = min(WIDTHS[at.backend], len(low.eigenvalues))
    held = HELD if at.backend == "cpu" else None
    values = meson_field_rows(low, currents, [momentum], width, rows, held, at.progress)
    return MesonFieldRows(values[:, 0], low.eigenvalues[rows.start : rows.stop])


@stage(version="1", over=("config",), labels=OPERATOR, cost=low_low_cost)
def low_low(fields: Chunks[MesonFieldRows], *, at: At, operators: Sequence[str], mass: float) -> LowLow:
    """C_LL(t) of one mass, exact over all sources, from meson fields that are read row by row.

    operators: those of the meson fields, in their order. mass: m of M = 2 m + D, positive. Raises InputError.
    """
    values = np.concatenate([np.asarray(rows.eigenvalue) for _, rows in fields])
    weights, done = mode_weights(values, mass), 0
    totals: list[Any] = [0] * len(operators)
    for _, rows in fields:
        own = weights[..., done : done + len(rows.eigenvalue)]
        for number, label in enumerate(operators):
            x, hops = np.asarray(rows.meson_field[number]), hops_of(label)
            totals[number] = totals[number] + rows_traced(x, x, own, weights, (hops, hops))
        done += len(rows.eigenvalue)
        at.progress(done, len(values))
    at.record(modes=len(values), eigenvalue_range=[float(values.min()), float(values.max())])
    return LowLow(np.stack([by_source_time(each).mean(axis=0).real for each in totals]))
