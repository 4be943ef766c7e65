"""Report of the disconnected current: correlator, loops, errors, estimators, solves, gauge fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import xarray
from numpy.typing import NDArray

from pipeline import Details, Figure, NodeAccount, Section, Store, Table, accounts, counted, open_result
from stages.loops.current_loops import DIFFERENCE, FLAVOURS, LIGHT
from stages.loops.loop_figures import (
    convergence_figure,
    correlator_figure,
    error_budget_figure,
    estimator_cost_figure,
    loops_figure,
)
from stages.loops.low_mode_loops import LowModeLoops, low_flavours
from stages.lqcd.analysis.budget import error_budget
from stages.lqcd.analysis.disconnected import NOT_INCLUDED
from stages.lqcd.analysis.estimator_cost import EstimatorCost
from stages.lqcd.analysis.stochastic_error import LEAST_VECTORS
from stages.lqcd.estimators.truncated import Piece, truncated_pieces
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
    solves_row,
    spectrum_section,
    with_errors,
)
from workflows.g2_disconnected.schema import G2Parameters, alternatives
from workflows.g2_disconnected.target_report import target_section

SPATIAL = slice(0, 3)
MAIN = "as configured"
PLAIN = "plain difference of the same solves"
MULTIPLES = 256
"""Of the measured noise vectors, to which errors are drawn; from the two vectors on that a pair takes."""


def sections(parameters: G2Parameters, store: Store) -> list[Section]:
    """The sections of a finished run."""
    solves = [node for node in accounts(store, parameters.workflow) if node.statistics("iterations")]
    masses = parameters.masses.model_dump()
    return available(
        lambda: correlator_section(store, parameters),
        lambda: loops_section(store, parameters),
        lambda: budget_section(store, parameters) if parameters.solves.fine else (),
        lambda: estimators_section(store, parameters) if wanted(parameters) else (),
        lambda: target_section(store, parameters.workflow) if parameters.target else (),
        lambda: solves_section(solves) if solves else (),
        lambda: choice_sections(store, parameters.workflow),
        lambda: spectrum_section(store, parameters.workflow, masses) if parameters.deflation else (),
        lambda: gauge_section(store, parameters.workflow),
    )


def texts(parameters: G2Parameters, store: Store) -> dict[str, str]:
    """Text files beside the page: the correlator with all its digits, for plotting programs."""
    return {"correlator.txt": average_text(store, parameters.workflow, FLAVOURS)}


def correlator_section(store: Store, parameters: G2Parameters) -> Section:
    """C(t) with jackknife errors, and bootstrap errors where they were asked for."""
    average = loaded(store, parameters.workflow, "average")
    columns = {name: _with_errors(average, "correlator", k) for k, name in enumerate(FLAVOURS)}
    if parameters.analysis.bootstrap:
        bootstrap = loaded(store, parameters.workflow, "bootstrap")
        columns |= {
            f"{name}, bootstrap": _with_errors(bootstrap, "correlator", k) for k, name in enumerate(FLAVOURS)
        }
    times = range(average.sizes["time"])
    freedom = degrees_of_freedom(store, parameters.workflow)
    table = Table(["t/a", *columns], list(zip(times, *columns.values(), strict=True)))
    left_out = Table(["factor", "what it is"], list(NOT_INCLUDED.items()), "Not included")
    text = (
        "C(t) = (1/3) sum over i = x, y, z of (1/T) sum over t0 of J_i(t0 + t) J_i(t0), from loops of "
        f"different noise vectors, averaged over {_configurations(store, parameters)} with "
        f"{errors_in(average.correlator_error.values, freedom=freedom)}. "
        "Lattice units, MILC's sign and normalisation of the loops."
    )
    caption = f"C(t), {errors_in(average.correlator_error.values, average.correlator.values)}."
    figure = Figure(correlator_figure(average.correlator, average.correlator_error), caption)
    return Section("Disconnected correlator", text, [figure, table, left_out])


def loops_section(store: Store, parameters: G2Parameters) -> Section:
    """The loops that are multiplied, and the condensate."""
    average = loaded(store, parameters.workflow, "average")
    current = loops_figure(average.loops, average.loops_error, DIFFERENCE)
    condensate = Table(
        ["flavour", "even sites", "odd sites"],
        [[name, *_with_errors(average, "condensate", k)] for k, name in enumerate(FLAVOURS)],
        "Condensate (2/V) tr M^-1 over the sites of a parity, M = 2 m + D",
    )
    exact = [_exact_table(store, parameters)] if parameters.exact else []
    text = "Ensemble means of the loops themselves; those of the current vanish in the exact average."
    kind = errors_in(average.loops_error.values[DIFFERENCE], average.loops.values[DIFFERENCE])
    figure = Figure(current, f"J(t) of light minus strange, by direction, {kind}.")
    return Section("Loops", text, [figure, condensate, *exact])


def _exact_table(store: Store, parameters: G2Parameters) -> Table:
    """Distance of the estimates from the exact traces in units of the estimates' own errors."""
    correlator = loaded(store, parameters.workflow, "correlator")
    rows = []
    for flavour, name in enumerate(FLAVOURS[:DIFFERENCE]):
        exact = loaded(store, parameters.workflow, f"exact_{name}")
        pulls = (correlator.loops[:, flavour] - exact.current) / correlator.loops_error[:, flavour]
        for config, values in zip(correlator.config.values, pulls.values, strict=True):
            rows.append(
                [name, str(config), f"{np.sqrt(np.mean(values**2)):.2f}", f"{np.abs(values).max():.2f}"]
            )
    caption = "Distance from the exact trace, in units of the quoted error (root mean square: about 1)"
    return Table(["flavour", "configuration", "root mean square", "largest"], rows, caption)


def budget_section(store: Store, parameters: G2Parameters) -> Section:
    """Error budget of a loop: sloppy noise, correction, spread of the gauge field."""
    names = (FLAVOURS[LIGHT], FLAVOURS[DIFFERENCE])
    flavours = dict(zip(names, _sloppy_and_correction(store, parameters), strict=True))
    figures = [
        Figure(error_budget_figure(*pieces), f"Error of one spatial J_i(t), {name}.")
        for name, pieces in flavours.items()
    ]
    rows = []
    for name, pieces in flavours.items():
        budget = error_budget(*pieces)
        gauge = budget.gauge if np.isfinite(budget.gauge) else None  # a single configuration has no spread
        rows.append([name, len(budget.vectors), budget.sloppy[-1], budget.correction, gauge])
    columns = ["flavour", "noise vectors", "sloppy solves", "correction", "spread over configurations"]
    text = (
        "Truncated solver method: many sloppy solves give the value, the fine ones of a few noise "
        "vectors remove its bias. More noise pays until its error falls below the gauge field's spread."
    )
    return Section(
        "Error budget", text, [*figures, Table(columns, rows, "Errors of one value of J_i(t)", digits=3)]
    )


def _sloppy_and_correction(
    store: Store, parameters: G2Parameters
) -> Iterator[tuple[xarray.DataArray, xarray.DataArray]]:
    """Sloppy loops and corrections ``[config, noise, direction, time]``: light, light minus strange."""
    sloppy, fine = (loops_of(store, parameters, suffix)[:, :, :, SPATIAL] for suffix in ("", "_fine"))
    for flavour in (LIGHT, DIFFERENCE):
        s, f = sloppy[:, :, flavour], fine[:, :, flavour]
        yield s, f - s.sel(noise=f.noise)


def _configurations(store: Store, parameters: G2Parameters) -> str:
    """Number of configurations averaged, and of all of them if some fill no bin."""
    (used,) = node_of(store, parameters.workflow, "average").statistics("configurations")
    configurations = open_result(store, "observables", workflow=parameters.workflow).sizes["config"]
    if used == configurations:
        return counted(configurations, "configuration")
    return f"{used} of {counted(configurations, 'configuration')} (the rest fills no jackknife bin)"


def _with_errors(data: xarray.Dataset, name: str, flavour: int) -> list[str]:
    return with_errors(data[name].values[flavour], data[f"{name}_error"].values[flavour])


def wanted(parameters: G2Parameters) -> bool:
    """True if there is anything to compare, on noise vectors enough for it."""
    estimator, fine = parameters.estimator, parameters.solves.fine
    several = parameters.alternatives or estimator.low_modes or estimator.difference == "split_even"
    least = min([parameters.noise.vectors, *([fine.vectors] if fine else [])])
    return bool(several) and least >= LEAST_VECTORS


def estimators_section(store: Store, parameters: G2Parameters) -> Section:
    """Parts of the loops, and a table and a plot of cost against error for light and light - strange."""
    parts = [parts_table(store, parameters)] if parameters.estimator.low_modes else []
    shown: list[Figure | Table] = [*parts]
    for flavour in (LIGHT, DIFFERENCE):
        costs = dict(_costs(store, parameters, flavour))
        curves = {name: cost.curve(_factors(cost)) for name, cost in costs.items()}
        measured = {name: (cost.work(), cost.correlator_error()) for name, cost in costs.items()}
        caption = (
            f"Stochastic error of C(t), {FLAVOURS[flavour]}, against work, eigenvectors included: measured, "
            "and what it says of other numbers of noise vectors."
        )
        shown.append(Figure(estimator_cost_figure(curves, measured), caption))
        shown.append(cost_table(costs, f"Cost of the same error, {FLAVOURS[flavour]}"))
    text = (
        "Errors are those of the noise at fixed gauge fields. Work is seconds per configuration, at the pace "
        "of the fastest chunk of each kind, as first ones compile kernels; what is done once per "
        "configuration, eigenvectors and their currents, is part of it. The last columns say what each "
        "estimator would take for the error of C(t) that the first one reached."
    )
    return Section("Estimators", text, shown)


def _factors(cost: EstimatorCost) -> NDArray[np.float64]:
    return np.geomspace(2 / min(cost.counts), MULTIPLES, 25)


def cost_table(costs: dict[str, EstimatorCost], caption: str) -> Table:
    """A row for each estimator; the error to reach is that of the first."""
    own = costs[MAIN]
    goal, rows = own.correlator_error(), []
    for name, cost in costs.items():
        needed = cost.work_for(goal)
        vectors = cost.counts[0]
        errors = (cost.loop_error() * np.sqrt(vectors), cost.correlator_error())
        once = f"{cost.once:.1f}" if cost.once else "-"
        work = (once, f"{cost.seconds / vectors:.2f}", f"{needed:.3g}", f"{needed / own.work():.3g}")
        rows.append([name, vectors, *(f"{error:.3g}" for error in errors), *work])
    columns = ["estimator", "vectors", "noise of J per vector", "error of C(t)", "s once", "s per vector"]
    return Table([*columns, "s for the same error", "ratio"], rows, caption)


def parts_table(store: Store, parameters: G2Parameters) -> Table:
    """Root mean squares over configurations, spatial directions and time slices."""
    low, high = low_parts(store, parameters), _noisy(store, parameters, "", "").values
    mean, error = high.mean(axis=1), high.std(axis=1, ddof=1) / np.sqrt(high.shape[1])
    rows = [
        [name, *(_rms(part[:, flavour, :3]) for part in (low, mean, error))]
        for flavour, name in enumerate(FLAVOURS)
    ]
    columns = ["flavour", "exact low part", "noisy remainder", "its error"]
    return Table(columns, rows, "Parts of J_i(t), root mean squares", digits=3)


def low_parts(store: Store, parameters: G2Parameters) -> NDArray[np.float64]:
    """The exact low part of J ``[config, flavour, direction, time]``."""
    result = loaded(store, parameters.workflow, "low_modes")
    arrays = [result[name].values for name in LowModeLoops._fields]
    of_configs = (LowModeLoops(*one) for one in zip(*arrays, strict=True))
    return np.stack([low_flavours(low, parameters.masses.of_stages).current for low in of_configs])


def _costs(store: Store, parameters: G2Parameters, flavour: int) -> Iterator[tuple[str, EstimatorCost]]:
    """Costs of the main estimator and the alternatives; plain differences beside split-even ones."""
    nodes = {node.name: node for node in accounts(store, parameters.workflow)}
    for name, changed in ((MAIN, parameters), *alternatives(parameters)):
        prefix = "" if name == MAIN else f"{name}_"
        current = [loops_of(store, changed, suffix, prefix) for suffix in _suffixes(changed)]
        seconds, once = _seconds(nodes, prefix), _once(nodes, changed)
        yield name, EstimatorCost.of(_pieces(current, flavour), seconds, once)
        if flavour == DIFFERENCE and changed.estimator.difference == "split_even":
            plain = [part - part.roll(flavour=-1) for part in current]
            beside = PLAIN if name == MAIN else f"{name}, {PLAIN}"
            yield beside, EstimatorCost.of(_pieces(plain, LIGHT), seconds, once)


def _suffixes(parameters: G2Parameters) -> list[str]:
    return ["", "_fine"] if parameters.solves.fine else [""]


def _pieces(current: list[xarray.DataArray], flavour: int) -> list[tuple[Piece, ...]]:
    """Pieces, sloppy and fine, of each configuration.

    From loops ``[config, noise, flavour, direction, time]``.
    """
    parts = [part[:, :, flavour] for part in current]
    numbers = [tuple(int(n) for n in part.noise.values) for part in parts]
    result = []
    for config in range(parts[0].sizes["config"]):
        pieces = [Piece(n, part.values[config]) for n, part in zip(numbers, parts, strict=True)]
        result.append(truncated_pieces(pieces[0], pieces[1] if len(pieces) > 1 else None))
    return result


def loops_of(store: Store, parameters: G2Parameters, suffix: str = "", prefix: str = "") -> xarray.DataArray:
    """J ``[config, noise, flavour, direction, time]`` with its exact part; suffix: '' or '_fine'."""
    noisy = _noisy(store, parameters, suffix, prefix)
    return noisy + low_parts(store, parameters)[:, None] if parameters.estimator.low_modes else noisy


def _noisy(store: Store, parameters: G2Parameters, suffix: str, prefix: str) -> xarray.DataArray:
    """Stored J ``[config, noise, flavour, direction, time]``, the mean over probes."""
    if parameters.estimator.difference == "split_even":
        current = loaded(store, parameters.workflow, f"{prefix}loops_split_even{suffix}").current
    else:
        names = (f"{prefix}loops_{mass}{suffix}" for mass in FLAVOURS[:DIFFERENCE])
        light, strange = (loaded(store, parameters.workflow, name).current for name in names)
        current = xarray.concat([light, strange, light - strange], "flavour")
    return current.mean("probe").transpose("config", "noise", "flavour", "direction", "time")


def _seconds(nodes: dict[str, NodeAccount], prefix: str) -> float:
    """Per configuration, for all noise vectors; by the fastest chunk, since first ones compile kernels."""
    loops = [node for name, node in nodes.items() if name.startswith(f"{prefix}loops_")]
    total = sum(_fastest(node) * len(node.records) for node in loops)
    return total / len(nodes["observables"].records)


def _fastest(node: NodeAccount) -> float:
    return min(record.seconds for record in node.records)


def _once(nodes: dict[str, NodeAccount], parameters: G2Parameters) -> float:
    """Per configuration: eigenvectors where they are used, their currents where they are added."""
    names = [SPACE] if parameters.deflation else []
    names += ["low_modes"] if parameters.estimator.low_modes else []
    return sum(_fastest(nodes[name]) for name in names)


def _rms(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(values**2)))


def solves_section(nodes: Sequence[NodeAccount]) -> Section:
    """Iterations, residuals and cost of the linear systems."""
    rows = []
    for node in nodes:
        statistics = [record.without_kernels("solve_seconds") for record in node.records]
        rows.append(solves_row(node.name, statistics, node.records[0].parameters["tolerance"]))
    columns = ["solves", *SOLVES, "of the full system", "ms per rhs"]
    if all(node.joules is not None for node in nodes):
        columns.append("J per rhs")
        for row, node in zip(rows, nodes, strict=True):
            row.append(f"{(node.joules or 0.0) / row[1]:.2g}")
    table = Table(columns, rows)
    solves = {node.name: node.records[0].statistics for node in nodes}
    figure = Figure(convergence_figure(solves), "The first block of right-hand sides of each kind of solve.")
    text = (
        "Residuals are |b - A x| / |b|, recomputed in double precision, the largest of all right-hand sides. "
        "Times leave out the compiling and reading of kernels."
    )
    return Section("Solves", text, [figure, table, *_choices(nodes)])


def _choices(nodes: Sequence[NodeAccount]) -> list[Details]:
    """Launch shapes of solves by earlier versions, which measured them: they may alter rounding, no more."""
    used = {choice for node in nodes for chunk in node.statistics("kernel_choices") for choice in chunk}
    lines = "\n".join(sorted(used))
    return [Details("Launch shapes of GPU kernels chosen by measurement", lines)] if used else []
