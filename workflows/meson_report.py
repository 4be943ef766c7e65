"""What the report of the workflow `mesons` shows: correlators, effective masses, solves, gauge fields."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
import xarray

from pipeline import Store, open_result
from pipeline.account import accounts
from pipeline.coordinates import describe
from pipeline.explain import counted
from pipeline.report import Figure, Section, Table, value_with_error
from stages.analysis.table import correlator_table
from stages.figures import convergence_figure
from stages.meson_figures import effective_mass_figure, meson_figure
from workflows.choice_report import Measured, choice_section
from workflows.ensemble_report import gauge_section
from workflows.mesons_schema import Mesons

WORKFLOW = "mesons"


def sections(parameters: Mesons, store: Store) -> list[Section]:
    """The sections of a finished run."""
    average = open_result(store, "average", workflow=WORKFLOW).load()
    return [
        correlator_section(average, store),
        mass_section(average),
        solves_section(parameters, store),
        *setup_sections(store),
        *choice_sections(store),
        gauge_section(store, WORKFLOW),
    ]


def texts(parameters: Mesons, store: Store) -> dict[str, str]:
    """Text files beside the page: all correlators with all their digits, for plotting programs."""
    average = open_result(store, "average", workflow=WORKFLOW).load()
    names = [f"{gamma} p={_momentum(p)}" for gamma in average.gamma.values for p in average.momentum.values]
    times = average.sizes["time"]
    values, errors = (average[name].values.reshape(-1, times) for name in ("correlator", "correlator_error"))
    metadata = {
        "C_G(p, t)": "sum_x exp(-ip(x-x0)) <O_G(x, t0+t) O_G(x0, t0)^dag>, lattice units, jackknife errors",
        "quark": parameters.quark.model_dump(exclude_none=True),
    }
    return {"mesons.txt": correlator_table(values, errors, names, metadata)}


def correlator_section(average: xarray.Dataset, store: Store) -> Section:
    """C(t) of the channels at rest."""
    rest = average.isel(momentum=0)
    names = [str(name) for name in rest.channel.values]
    columns = [
        [value_with_error(float(v), float(e)) for v, e in zip(values, errors, strict=True)]
        for values, errors in zip(rest.channel_correlator.values, rest.channel_error.values, strict=True)
    ]
    table = Table(["t/a", *names], list(zip(range(rest.sizes["time"]), *columns, strict=True)))
    given = open_result(store, "mesons", workflow=WORKFLOW).sizes
    text = (
        f"Means over {counted(given['source'], 'source')} and {counted(given['config'], 'configuration')} "
        "with jackknife errors; t counts from the source. Each channel is the mean of the Dirac matrices "
        "that belong to it; all sixteen, and all momenta, are in mesons.txt. Lattice units, without "
        "renormalisation; the quark-line disconnected part is no part of these flavour-non-singlet mesons."
    )
    figure = Figure(
        meson_figure(rest.channel_correlator, rest.channel_error, names),
        f"C(t) at p = {_momentum(average.momentum.values[0])}, jackknife errors.",
    )
    return Section("Meson correlators", text, [figure, table])


def mass_section(average: xarray.Dataset) -> Section:
    """Effective masses of pion and rho, and effective energies at the other momenta."""
    names = ("pion", "rho")
    labels = [f"{name}, p = {_momentum(p)}" for name in names for p in average.momentum.values]
    chosen = average.sel(channel=list(names))
    times = average.sizes["time"]
    mass, error = (
        chosen[name].values.reshape(-1, times) for name in ("effective_mass", "effective_mass_error")
    )
    rows = [
        [t, *(_value(float(m), float(e)) for m, e in zip(mass[:, t], error[:, t], strict=True))]
        for t in range(1, times // 2 + 1)
    ]
    text = (
        "cosh m(t) = [C(t - 1) + C(t + 1)] / [2 C(t)], which is exact for one state, forwards and backwards. "
        "It falls towards the ground state's energy as t grows."
    )
    figure = Figure(effective_mass_figure(mass, error, labels), "Effective masses, jackknife errors.")
    return Section("Effective masses", text, [figure, Table(["t/a", *labels], rows)])


def solves_section(parameters: Mesons, store: Store) -> Section:
    """Iterations, residuals and cost of the propagators."""
    said = list(_solves(store))
    iterations = [number for each in said for number in each["iterations"]]
    rhs = sum(each["rhs"] for each in said)
    seconds = sum(each["solve_seconds"] for each in said)
    spread = f"{min(iterations)} / {median(iterations):g} / {max(iterations)}"
    largest = [f"{max(each[name] for each in said):.1e}" for name in ("residual_max", "full_residual_max")]
    row = [said[0]["solver"], rhs, spread, parameters.solves.tolerance, *largest]
    columns = ["solver", "rhs", "iterations (min / median / max)", "tolerance", "largest residual"]
    table = Table([*columns, "of the full operator", "ms per rhs"], [[*row, f"{1000 * seconds / rhs:.1f}"]])
    figure = Figure(
        convergence_figure({said[0]["solver"]: said[0]["history"]}), "The first block of right-hand sides."
    )
    text = (
        "Residuals are |b - A x| / |b| of the even-odd system, and |b - M x| / |b| of the full operator, "
        "recomputed in double precision, the largest of all columns. Those of every column are in the store."
    )
    return Section("Solves", text, [figure, table])


def setup_sections(store: Store) -> Iterator[Section]:
    """What the multigrid setups took and how well they converge, where there are any."""
    for node in accounts(store, WORKFLOW):
        if node.stage != "multigrid_setup":
            continue
        rows = []
        for record in node.records:
            said = record["statistics"]
            tried = ", ".join(f"{attempt['rate']:.2g}" for attempt in said["attempts"][:-1]) or None
            place = describe(record["coordinates"])
            rows.append([place, f"{said['setup_seconds']:.2f}", f"{said['rate']:.2g}", tried])
        grids = ", ".join(node.records[0]["statistics"]["grids"])
        text = (
            f"Coarse grids: {grids}. The rate is the factor by which a cycle reduces a random residual; a "
            "setup with a poor one is made again from other random vectors."
        )
        columns = ["configuration", "seconds", "rate", "rates of setups not used"]
        yield Section("Multigrid setups", text, [Table(columns, rows)])


def choice_sections(store: Store) -> Iterator[Section]:
    """What `solver: auto` measured, where it did."""
    for node in accounts(store, WORKFLOW):
        if node.stage != "solver_choice":
            continue
        found = open_result(store, node.name, workflow=WORKFLOW).load().isel(config=0)
        said = node.records[0]["statistics"]
        measured = {
            name: Measured(
                how,
                [float(row.iterations)],
                float(row.setup_seconds),
                [float(row.seconds_per_rhs)],
                float(row.setup_seconds + said["planned"] * row.seconds_per_rhs),
            )
            for name, how in said["how"].items()
            for row in [found.sel(solver=name)]
        }
        yield choice_section(measured, said["chosen"], said["planned"], said["columns"])


def _solves(store: Store) -> Iterator[dict[str, Any]]:
    """What each chunk of propagators recorded: it is kept with what was made of it."""
    seen = set()
    for node in accounts(store, WORKFLOW):
        for record in node.records:
            for each in record["transient"]:
                if each["stage"] == "propagator" and each["key"] not in seen:
                    seen.add(each["key"])
                    yield each["statistics"]


def _value(mass: float, error: float) -> str | None:
    """None where there is no effective mass."""
    return value_with_error(mass, error) if np.isfinite(mass) else None


def _momentum(momentum: Any) -> str:
    return ",".join(str(int(n)) for n in momentum)
