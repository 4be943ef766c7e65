"""Report of the disconnected current: correlator, loops, errors, solves, gauge fields."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import xarray

from pipeline import Store, open_result
from pipeline.declare.text import counted
from pipeline.reading.account import accounts
from pipeline.reading.report import Figure, Section, Table, value_with_error
from stages.loops.current_loops import DIFFERENCE, FLAVOURS, LIGHT
from stages.loops.loop_figures import (
    correlator_figure,
    error_budget_figure,
    loops_figure,
)
from stages.lqcd.analysis.budget import error_budget
from stages.lqcd.analysis.disconnected import NOT_INCLUDED
from stages.lqcd.analysis.table import correlator_table
from workflows.g2_disconnected.estimators_report import estimators_section, loops_of, wanted
from workflows.g2_disconnected.schema import G2Parameters
from workflows.g2_disconnected.solves_report import solves_section
from workflows.g2_disconnected.target_report import target_section
from workflows.shared.report_sections import available, degrees_of_freedom, gauge_section
from workflows.shared.solver_sections import choice_sections, spectrum_section

SPATIAL = slice(0, 3)


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
    average = _result(store, parameters, "average")
    freedom = degrees_of_freedom(store, parameters.workflow)
    metadata = {"degrees of freedom": freedom} if freedom else {}
    return {
        "correlator.txt": correlator_table(average.correlator, average.correlator_error, FLAVOURS, metadata)
    }


def correlator_section(store: Store, parameters: G2Parameters) -> Section:
    """C(t) with jackknife errors, and bootstrap errors where they were asked for."""
    average = _result(store, parameters, "average")
    columns = {name: _with_errors(average, "correlator", k) for k, name in enumerate(FLAVOURS)}
    if parameters.analysis.bootstrap:
        bootstrap = _result(store, parameters, "bootstrap")
        columns |= {
            f"{name}, bootstrap": _with_errors(bootstrap, "correlator", k) for k, name in enumerate(FLAVOURS)
        }
    times = range(average.sizes["time"])
    freedom = degrees_of_freedom(store, parameters.workflow)
    table = Table(["t/a", *columns], list(zip(times, *columns.values(), strict=True)))
    left_out = Table(["factor", "what it is"], list(NOT_INCLUDED.items()), "Not included")
    text = (
        "C(t) = (1/3) sum over i = x, y, z of (1/T) sum over t0 of J_i(t0 + t) J_i(t0), from loops of "
        f"different noise vectors, averaged over {_configurations(store, parameters)} with jackknife errors"
        f"{f' ({freedom})' if freedom else ''}. "
        "Lattice units, MILC's sign and normalisation of the loops."
    )
    figure = Figure(
        correlator_figure(average.correlator, average.correlator_error), "C(t), jackknife errors."
    )
    return Section("Disconnected correlator", text, [figure, table, left_out])


def loops_section(store: Store, parameters: G2Parameters) -> Section:
    """The loops that are multiplied, and the condensate."""
    average = _result(store, parameters, "average")
    current = loops_figure(average.loops, average.loops_error, DIFFERENCE)
    condensate = Table(
        ["flavour", "even sites", "odd sites"],
        [[name, *_with_errors(average, "condensate", k)] for k, name in enumerate(FLAVOURS)],
        "Condensate (2/V) tr M^-1 over the sites of a parity, M = 2 m + D",
    )
    exact = [_exact_table(store, parameters)] if parameters.exact else []
    text = (
        "Ensemble means of the loops themselves; without noise and gauge fluctuations the current's vanish."
    )
    return Section(
        "Loops", text, [Figure(current, "J(t) of light minus strange, by direction."), condensate, *exact]
    )


def _exact_table(store: Store, parameters: G2Parameters) -> Table:
    """Distance of the estimates from the exact traces in units of the estimates' own errors."""
    correlator = _result(store, parameters, "correlator")
    rows = []
    for flavour, name in enumerate(FLAVOURS[:DIFFERENCE]):
        exact = _result(store, parameters, f"exact_{name}")
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
    flavours = dict(zip(names, _pieces(store, parameters), strict=True))
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


def _pieces(store: Store, parameters: G2Parameters) -> Iterator[tuple[xarray.DataArray, xarray.DataArray]]:
    """Sloppy loops and corrections ``[config, noise, direction, time]``: light, light minus strange."""
    sloppy, fine = (loops_of(store, parameters, suffix)[:, :, :, SPATIAL] for suffix in ("", "_fine"))
    for flavour in (LIGHT, DIFFERENCE):
        s, f = sloppy[:, :, flavour], fine[:, :, flavour]
        yield s, f - s.sel(noise=f.noise)


def _result(store: Store, parameters: G2Parameters, name: str) -> xarray.Dataset:
    return open_result(store, name, workflow=parameters.workflow).load()


def _configurations(store: Store, parameters: G2Parameters) -> str:
    """Number of configurations averaged, and of all of them if some fill no bin."""
    (average,) = (node for node in accounts(store, parameters.workflow) if node.name == "average")
    (used,) = average.statistics("configurations")
    configurations = open_result(store, "observables", workflow=parameters.workflow).sizes["config"]
    if used == configurations:
        return counted(configurations, "configuration")
    return f"{used} of {counted(configurations, 'configuration')} (the rest fills no jackknife bin)"


def _with_errors(data: xarray.Dataset, name: str, flavour: int) -> list[str]:
    values, errors = data[name].values[flavour], data[f"{name}_error"].values[flavour]
    return [value_with_error(float(v), float(e)) for v, e in zip(values, errors, strict=True)]
