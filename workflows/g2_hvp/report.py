"""Report of the workflow `g2_hvp`: correlators, a_mu in windows, bounds, budget, autocorrelations, solves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from pipeline import Figure, InputError, Section, Store, Table, accounts, open_result
from stages.hvp.hvp_figures import bounds_figure, budget_figure, integrand_figure
from stages.lqcd.analysis.blinding import Blinding
from stages.lqcd.analysis.common_resampling import Resampling, gamma_error, stream_labels
from stages.lqcd.analysis.hvp_budget import HvpBudget
from stages.lqcd.analysis.scale import Measured
from stages.lqcd.analysis.table import correlator_table
from stages.mesons.meson_figures import effective_mass_figure, meson_figure
from workflows import available, gauge_section, loaded, node_of, nodes_of, spectrum_section, with_errors
from workflows.g2_disconnected.report import solves_section
from workflows.g2_hvp.schema import HvpParameters

UNITS = "in 1e-10"


class Results:
    """The averages and a_mu of a finished run, blinded or open."""

    def __init__(self, parameters: HvpParameters, store: Store) -> None:
        self.parameters, self.store, self.workflow = parameters, store, parameters.workflow

    @cached_property
    def average(self) -> xarray.Dataset:
        """C(t) by part and current."""
        return loaded(self.store, self.workflow, "average")

    @cached_property
    def a_mu(self) -> xarray.Dataset:
        """G(t) and the budget."""
        return loaded(self.store, self.workflow, "a_mu")

    def statistic(self, node: str, name: str) -> Any:
        """What a node's record says, or None."""
        return next(iter(node_of(self.store, self.workflow, node).statistics(name)), None)

    @property
    def digest(self) -> str | None:
        """Of the blinding."""
        found = self.statistic("a_mu", "blinded")
        return str(found) if found else None

    @property
    def budgets(self) -> Iterator[HvpBudget]:
        """The budget of each window."""
        data, section = self.a_mu, self.parameters.analysis
        notes = [str(note) for note in self.statistic("a_mu", "notes") or ()]
        for window in map(str, data.window.values):
            each = data.sel(window=window)
            rows = [
                Measured(float(np.nan_to_num(value)), float(error), str(name))
                for name, value, error in zip(
                    each.row.values, each.budget.values, each.budget_error.values, strict=True
                )
                if np.isfinite(error) and name != "total"
            ]
            names = [str(name) for name in data.part.values]
            parts = tuple(row for row in rows if row.name in names)
            corrections = tuple(row for row in rows if row.name in section.corrections)
            sources = tuple(row for row in rows if row not in (*parts, *corrections))
            own = tuple(note for note in notes if note.startswith(f"{window}, "))
            yield HvpBudget(f"a_mu [{window}]", parts, sources, corrections, own, self.digest)


def sections(parameters: HvpParameters, store: Store) -> list[Section]:
    """The sections of a finished run."""
    results = Results(parameters, store)
    solves = [node for node in accounts(store, parameters.workflow) if node.statistics("iterations")]
    masses = {name: quark.mass for name, quark in parameters.quarks.items()}
    return available(
        lambda: budget_section(results),
        lambda: integrand_section(results),
        lambda: bounds_section(results) if parameters.analysis.tail else (),
        lambda: correlator_section(results),
        lambda: z_v_section(results),
        lambda: autocorrelation_section(results),
        lambda: solves_section(solves) if solves else (),
        lambda: spectrum_section(store, parameters.workflow, masses) if parameters.deflation else (),
        lambda: gauge_section(store, parameters.workflow),
    )


def texts(parameters: HvpParameters, store: Store) -> dict[str, str]:
    """Text files beside the page: the budgets, and all correlators with all their digits."""
    results = Results(parameters, store)
    tables = {}
    for name, data, metadata in (
        ("correlators.txt", results.average, {"not included": "charges, Z_V^2, 1/L^3"}),
        ("g.txt", results.a_mu, {"included": "charges, Z_V^2, 1/L^3"}),
    ):
        marked = metadata | ({"blinded": results.digest} if results.digest else {})
        tables[name] = correlator_table(
            data.correlator, data.correlator_error, list(map(str, data.part.values)), marked
        )
    return {"a_mu.txt": "\n\n".join(map(str, results.budgets)) + "\n", **tables}


def blinded_words(results: Results) -> str:
    """What a blinded run says on its pages."""
    if not results.digest:
        return ""
    return (
        f"BLINDED ({results.digest}): all numbers linear in averages of correlators carry one secret factor; "
        "ratios, such as relative errors, Z_V and effective masses, are free. Stated corrections are added "
        "when it is opened: quarkline open. "
    )


def budget_section(results: Results) -> Section:
    """a_mu in all windows: parts, errors by source, and how much of the error is noise."""
    data = results.a_mu
    names = [str(name) for name in data.part.values]
    rows = [str(name) for name in data.row.values]
    windows = [str(name) for name in data.window.values]
    columns = [
        [_entry(value, error) for value, error in zip(values, errors, strict=True)]
        for values, errors in zip(data.budget.values, data.budget_error.values, strict=True)
    ]
    budget = Table(
        ["", *windows], list(zip(rows, *columns, strict=True)), f"a_mu {UNITS}, and errors by source"
    )
    sources = [k for k, name in enumerate(rows) if name not in names and name != "total"]
    errors = data.budget_error.values[:, sources]
    figure = Figure(
        budget_figure(errors, [rows[k] for k in sources], windows), "Errors of the total by source."
    )
    statistical = data.budget_error.values[:, [rows.index(name) for name in names]]
    noise = data.stochastic.values
    gauge = np.sqrt(np.maximum(statistical**2 - np.nan_to_num(noise) ** 2, 0))
    shares = Table(
        ["window", "part", "statistical", "noise", "gauge"],
        [
            [window, name, statistical[w, k], _number(noise[w, k]), gauge[w, k]]
            for w, window in enumerate(windows)
            for k, name in enumerate(names)
        ],
        f"Statistical errors {UNITS}: of the noise at fixed gauge fields, and of these",
        digits=3,
    )
    notes = [*_list(results.statistic("average", "notes")), *_list(results.statistic("a_mu", "notes"))]
    freedom = results.statistic("average", "freedom")
    counts = ", ".join(
        f"{n} of {part}" for part, n in dict(results.statistic("average", "configurations") or {}).items()
    )
    text = (
        f"{blinded_words(results)}a_mu = sum over n of w(n) G(n), G(n) folded, with charges, Z_V^2, 1/L^3. "
        f"Configurations: {counts}. {f'{freedom}. ' if freedom else ''}"
        "Statistical errors of parts are correlated; the row `statistical` is that of their sum. "
        + "".join(f"{note}. " for note in notes)
    )
    return Section("Contribution to a_mu", text, [budget, figure, shares])


def _entry(value: float, error: float) -> str:
    if not np.isfinite(error):
        return ""
    return (
        f"({error:.3g})" if not np.isfinite(value) else with_errors(np.array([value]), np.array([error]))[0]
    )


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _list(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else []


def integrand_section(results: Results) -> Section:
    """w(t) G(t) and partial sums by part."""
    data, window = results.a_mu, str(results.a_mu.window.values[0])
    names, weight = [str(name) for name in data.part.values], data.weight.values[0]
    count = len(weight)
    samples = data.correlator_samples.values
    both = np.concatenate([data.correlator.values[None], samples])
    folded = (both[..., :count] + both[..., -np.arange(count)]) / 2
    terms = weight * folded
    bootstrap = results.parameters.analysis.errors.bootstrap
    errors = weight * Resampling(bootstrap=bootstrap or 0).error(folded)
    figure = Figure(
        integrand_figure(terms[0], errors, names, window), f"w(t) G(t) {UNITS}, window {window}, G folded."
    )
    columns = [with_errors(terms[0, k], errors[k]) for k in range(len(names))]
    first = Table(
        ["t/a", *names], list(zip(range(count), *columns, strict=True)), f"w(t) G(t) {UNITS}, {window}"
    )
    tables = [first]
    for number, name in enumerate(map(str, data.window.values)):
        sums = [
            with_errors(data.partial_sum.values[number, k], data.partial_sum_error.values[number, k])
            for k in range(len(names))
        ]
        rows = list(zip(range(count), *sums, strict=True))
        tables.append(Table(["up to t/a", *names], rows, f"Partial sums {UNITS}, {name}, without bounds"))
    moments = [with_errors(data.moment.values[k], data.moment_error.values[k]) for k in range(len(names))]
    of_parts = [[name, *row] for name, row in zip(names, moments, strict=True)]
    tables.append(
        Table(["part", *(f"t^{p}, GeV^{2 - p}" for p in data.power.values)], of_parts, "Time moments of G")
    )
    return Section("Integrand", f"{blinded_words(results)}The sum is of G itself.", [figure, *tables])


def bounds_section(results: Results) -> Section:
    """Bounding bands of the light and the disconnected part."""
    data = results.a_mu
    figures: list[Figure | Table] = []
    for part in map(str, data.bounded.values):
        each = data.sel(bounded=part).isel(window=0)
        known = np.flatnonzero(np.isfinite(each.bound.values[0]))
        if not len(known):
            continue
        window = str(each.window.values)
        figures.append(
            Figure(bounds_figure(each.bound, each.bound_error, part, window), f"Bounds of the tail, {part}.")
        )
        columns = [
            with_errors(each.bound.values[s, known], each.bound_error.values[s, known]) for s in (0, 1)
        ]
        rows = list(zip(known, *columns, strict=True))
        figures.append(Table(["n_c", "lower", "upper"], rows, f"a_mu {UNITS}, {part}, {window}"))
    text = "The tail beyond n_c is between two decays; without a signal the bands are apart, or noise."
    return Section("Bounds of the tails", f"{blinded_words(results)}{text}", figures)


def correlator_section(results: Results) -> Section:
    """C(t) as measured, and effective masses."""
    data = results.average
    names = [str(name) for name in data.part.values]
    values, errors = data.correlator.values, data.correlator_error.values
    columns = [with_errors(*each) for each in zip(values, errors, strict=True)]
    table = Table(
        ["t/a", *names], list(zip(range(values.shape[1]), *columns, strict=True)), "C(t), lattice units"
    )
    mass, error = data.effective_mass.values, data.effective_mass_error.values
    text = (
        f"{blinded_words(results)}Slice traces C(t), and products JJ(t) of loops, light - strange; without "
        "charges, Z_V^2 and 1/L^3. Effective masses are of [C(t - 1) + 2 C(t) + C(t + 1)] / 4, which "
        "suppresses the partner of other parity; this smoothing enters no sum."
    )
    return Section(
        "Correlators",
        text,
        [
            Figure(meson_figure(values, errors, names), "|C(t)|; triangles: negative C(t)."),
            table,
            Figure(effective_mass_figure(mass, error, names), "Effective masses."),
        ],
    )


def z_v_section(results: Results) -> Section:
    """Z_V of each part's current, and what the ratio to the conserved current gives at other slices."""
    data = results.a_mu
    names = [str(name) for name in data.part.values]
    used = with_errors(data.z_v.values, data.z_v_error.values)
    ratios = [
        [v if np.isfinite(r) else None for v, r in zip(with_errors(row, err), row, strict=True)]
        for row, err in zip(data.z_v_ratio.values, data.z_v_ratio_error.values, strict=True)
    ]
    rows = [[name, z, *ratio[1:]] for name, z, ratio in zip(names, used, ratios, strict=True)]
    columns = ["part", "Z_V in use", *(f"ratio at {n}" for n in range(1, data.sizes["slice"]))]
    text = (
        "The ratio is sqrt(S_conserved / S) at a slice, S = [C(t - 1) + 2 C(t) + C(t + 1)] / 4; how it "
        "changes with t and mass is of order a^2."
    )
    return Section("Z_V", text, [Table(columns, rows)])


def autocorrelation_section(results: Results) -> Section:
    """Integrated autocorrelation times of each part's correlator, by the Gamma method."""
    node = nodes_of(results.store, results.workflow)["average"]
    streams = results.parameters.analysis.errors.streams
    half, rows = results.average.sizes["time"] // 4, []
    title, text = (
        "Autocorrelations",
        f"tau_int of C(t) at t = {half}, in units of the least spacing; 1/2: none.",
    )
    options = node["parameters"]
    for part, source in zip(options["parts"], options["sources"], strict=True):
        data = open_result(results.store, node["inputs"][source["input"]], workflow=results.workflow)
        values = data.correlator.values[:, source["row"], half]
        labels = stream_labels([str(label) for label in data.config.values], streams)
        try:
            found = gamma_error({part: (values, labels)})
        except InputError as error:
            return Section(title, str(error), [])
        except Exception as error:  # of pyerrors, which needs longer chains than tests have
            rows.append([part, f"none: {error}", None])
            continue
        naive = float(np.std(values, ddof=1) / np.sqrt(len(values)))
        tau = with_errors(np.array([found.tau_int]), np.array([found.tau_int_error]))[0]
        rows.append([part, tau, f"{found.error / naive:.3g}" if naive else None])
    return Section(title, text, [Table(["part", "tau_int", "error over that of independent ones"], rows)])


def opened(parameters: HvpParameters, store: Store, key: Path) -> str:
    """The budgets without the blinding's factor, corrections added. Raises InputError for another key."""
    results = Results(parameters, store)
    if not results.digest:
        raise InputError(f"the results of {parameters.workflow} in {store.path} are not blinded")
    blinding = Blinding.of_file(key, results.digest)
    lines = []
    for budget in results.budgets:
        window = budget.quantity[len("a_mu [") : -1]
        corrections = [
            each.named(name)
            for name, each in parameters.analysis.corrections.items()
            if each.window == window
        ]
        lines.append(str(budget.opened(blinding.key).corrected(*corrections)))
    return "\n\n".join(lines)
