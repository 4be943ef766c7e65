"""Report of connected correlators: correlators, estimators and their costs, solves, gauge fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import xarray
from numpy.typing import NDArray

from pipeline import At, Figure, NodeAccount, Section, Store, Table, accounts, counted
from stages.connected.correlator import linear_in_c, wall_moments
from stages.connected.walls import WallCorrelators
from stages.lqcd.analysis.estimator_cost import EstimatorCost
from stages.lqcd.analysis.stochastic_error import LEAST_VECTORS, NoiseMoments
from stages.mesons.meson_figures import meson_figure
from workflows import (
    SOLVES,
    SPACE,
    available,
    average_text,
    choice_sections,
    degrees_of_freedom,
    errors_in,
    gauge_section,
    loaded,
    node_of,
    solves_of,
    solves_row,
    spectrum_section,
    with_errors,
)
from workflows.g2_connected.schema import ConnectedParameters

MAIN = "as configured"
NORMALISATION = (
    "C(t) = (1/T) sum over t0 of Tr [P_t0+t O G P_t0 O G]: the trace over a slice, L^3 times the correlator "
    "of one point, without factors of charge, taste or Z_V"
)


def sections(parameters: ConnectedParameters, store: Store) -> list[Section]:
    """The sections of a finished run."""
    workflow, first = parameters.workflow, next(iter(parameters.quarks))
    masses = {n: q.mass for n, q in parameters.quarks.items() if parameters.has_modes(n)} or {first: 0.0}
    return available(
        lambda: correlator_section(store, parameters),
        lambda: estimators_section(store, parameters) if wanted(parameters) else (),
        lambda: solves_section(store, parameters),
        lambda: choice_sections(store, workflow),
        lambda: spectrum_section(store, workflow, masses) if parameters.deflation else (),
        lambda: gauge_section(store, workflow),
    )


def texts(parameters: ConnectedParameters, store: Store) -> dict[str, str]:
    """Text files beside the page: all correlators with all their digits, for plotting programs."""
    names = [f"{quark} {current}" for quark in parameters.quarks for current in parameters.currents]
    return {"correlator.txt": average_text(store, parameters.workflow, names, normalisation=NORMALISATION)}


def correlator_section(store: Store, parameters: ConnectedParameters) -> Section:
    """C(t) of all quarks and currents."""
    average = loaded(store, parameters.workflow, "average")
    (used,) = node_of(store, parameters.workflow, "average").statistics("configurations")
    freedom = degrees_of_freedom(store, parameters.workflow)
    shown: list[Figure | Table] = []
    for number, quark in enumerate(parameters.quarks):
        of_quark = average.isel(quark=number)
        values, errors = of_quark.correlator.values, of_quark.correlator_error.values
        noise = np.sqrt(np.mean(of_quark.stochastic_error.values**2, axis=-1))
        columns = [with_errors(*each) for each in zip(values, errors, strict=True)]
        rows = list(zip(range(average.sizes["time"]), *columns, strict=True))
        mass = parameters.quarks[quark].mass
        caption = f"C(t), {quark}, m = {mass:g}, {errors_in(errors, values)}"
        shown.append(Figure(meson_figure(values, errors, parameters.currents), f"{caption}."))
        walls = ", ".join(f"{n} {e:.2e}" for n, e in zip(parameters.currents, noise, strict=True))
        caption = f"C(t), {quark}; error by the walls' noise only, root mean square: {walls}"
        shown.append(Table(["t/a", *parameters.currents], rows, caption))
    text = (
        f"{NORMALISATION}. Means over x, y and z and over {counted(used, 'configuration')} with "
        f"{errors_in(average.correlator_error.values, freedom=freedom)}. Low modes from all sources, where "
        "there are any, random walls for the rest."
    )
    return Section("Connected correlators", text, shown)


def wanted(parameters: ConnectedParameters) -> bool:
    """True if there are walls enough for the errors of errors."""
    fine = parameters.solves.fine
    return min(parameters.noise.walls, fine.walls if fine else LEAST_VECTORS) >= LEAST_VECTORS


def estimators_section(store: Store, parameters: ConnectedParameters) -> Section:
    """What each estimator of C(t) leaves of noise at a fixed field, and what it takes for the same error."""
    pairs = product(parameters.quarks, parameters.currents)
    shown = [estimator_table(store, parameters, *each) for each in pairs]
    text = (
        "Errors of C(t) of one configuration by the walls' noise and times, at fixed gauge fields: root mean "
        "squares over configurations. Work is seconds per configuration, at the pace of the fastest chunk of "
        "each kind; eigenvectors, meson fields and LL are its part that is done once. The last columns say "
        "what each estimator would take for the error of the first one, in joules too where they are known."
    )
    return Section("Estimators", text, shown)


def estimator_table(store: Store, parameters: ConnectedParameters, quark: str, current: str) -> Table:
    """A row for each estimator of a quark's current; the error to reach is that of the first."""
    solved = [f"walls_{quark}{end}" for end in ("", "_fine")[: 1 + bool(parameters.solves.fine)]]
    walls = [loaded(store, parameters.workflow, name) for name in solved]
    extent, low = walls[0].sizes["time"], walls[0].low
    times = parameters.analysis.times or sorted({extent // 4, 7 * extent // 16})
    nodes = {node.name: node for node in accounts(store, parameters.workflow)}
    modes = parameters.has_modes(quark)
    once = [SPACE, "meson_fields", f"low_low_{quark}"] if modes else []
    tried = {MAIN: (walls, low, solved, once)}
    if modes:
        tried["random walls only, deflated"] = walls, 0 * low, solved, once[:1]
        if len(walls) > 1:
            tried["low modes, fine solves only"] = walls[1:], low, solved[1:], once
    if len(walls) > 1:
        tried[f"fine solves only{', deflated' * modes}"] = walls[1:], 0 * low, solved[1:], once[:1]
    measured = all(nodes[name].joules is not None for name in (*solved, *once))
    goals: list[float] = []
    rows = []
    for name, (pieces, part, *names) in tried.items():
        spent, before = (sum(_seconds(nodes, each) for each in group) for group in names)
        own = [each.assign(low=part.sel(source=each.source)) for each in pieces]
        counts, linear = tuple(each.sizes["source"] for each in own), _linear(own, parameters, current)
        of_times = [NoiseMoments(linear[..., t], linear[..., t], np.zeros((len(own),) * 4)) for t in times]
        costs = [EstimatorCost(each, counts, spent, before) for each in of_times]
        errors = [cost.correlator_error() for cost in costs]
        goals = goals or errors
        needed = [cost.work_for(goal) for cost, goal in zip(costs, goals, strict=True)]
        walls_text, shown = " + ".join(map(str, counts)), linear_in_c(np.array(errors)).tolist()
        rows.append([name, walls_text, *shown, before, spent / counts[0], *needed])
        if measured:
            configurations = len(nodes["observables"].records)
            drawn, first = (sum(nodes[n].joules or 0.0 for n in group) / configurations for group in names)
            rows[-1] += [first + drawn * (each - before) / spent for each in needed]
    columns = ["estimator", "walls", *(f"error at t = {t}" for t in times), "s once", "s per wall"]
    columns += [f"s for the same error at {t}" for t in times]
    columns += [f"J for the same error at {t}" for t in times if measured]
    return Table(columns, rows, f"Estimators of C(t), {quark}, {current}", digits=3)


def _linear(walls: Sequence[xarray.Dataset], parameters: ConnectedParameters, current: str) -> NDArray:
    """Covariances of single walls' C(t), ``[piece, piece, time]``, means over configurations."""
    of_configs = []
    for config in range(walls[0].sizes["config"]):
        results = [[each[name].values[config] for name in WallCorrelators._fields] for each in walls]
        places = (At(source=each.source.values.tolist()) for each in walls)
        chunks = [[(at, WallCorrelators(*one))] for at, one in zip(places, results, strict=True)]
        of_configs.append(wall_moments(chunks, parameters.operators, current).linear)
    return np.mean(of_configs, axis=0)


def _seconds(nodes: dict[str, NodeAccount], name: str) -> float:
    """Per configuration; by the fastest chunk, since first ones compile kernels."""
    records = nodes[name].records
    fastest = min(record.seconds for record in records)
    return fastest * len(records) / len(nodes["observables"].records)


def solves_section(store: Store, parameters: ConnectedParameters) -> Iterator[Section]:
    """Iterations, residuals and cost of the linear systems of each quark and accuracy."""
    rows, solves = [], parameters.solves
    for node in accounts(store, parameters.workflow):
        if node.stage == "wall_correlators":
            solved = list(solves_of(store, parameters.workflow, "staggered_propagator", node.name))
            accuracy = solves.fine if solves.fine and node.name.endswith("_fine") else solves.sloppy
            rows.append(solves_row(node.name, solved, accuracy.tolerance))
    if rows:
        columns = ["walls", *SOLVES, "of the full operator", "ms per rhs"]
        text = (
            "Residuals are |b - A x| / |b| of the even sites' system, and |b - M x| / |b| of the full "
            "operator, recomputed in double precision, the largest of all columns. Times leave out the "
            "compiling and reading of kernels."
        )
        yield Section("Solves of walls", text, [Table(columns, rows)])
