"""Report of the workflow `g2_hvp`: correlators, a_mu in windows, bounds, budget, autocorrelations, solves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from pipeline import Figure, InputError, Section, Store, Table, accounts, open_result
from stages.hvp.hvp_figures import bounds_figure, budget_figure, integrand_figure
from stages.lqcd.analysis.blinding import Blinding
from stages.lqcd.analysis.common_resampling import Resampling, gamma_error
from stages.lqcd.analysis.hvp_budget import HvpBudget
from stages.lqcd.analysis.hvp_sum import fold
from stages.lqcd.analysis.scale import Measured
from stages.lqcd.analysis.table import correlator_table
from stages.mesons.meson_figures import effective_mass_figure, meson_figure
from workflows import available, gauge_section, loaded, node_of, nodes_of, spectrum_section, with_errors
from workflows.g2_connected.report import estimators_section, wanted
from workflows.g2_connected.report import solves_section as wall_solves
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

    def said(self, node: str, name: str) -> Any:
        """What a node's record says, or ()."""
        return next(iter(node_of(self.store, self.workflow, node).statistics(name)), ())

    @property
    def budgets(self) -> Iterator[HvpBudget]:
        """The budget of each window."""
        data, stated = self.a_mu, self.parameters.analysis.corrections.keys()
        parts, notes = {*names_along(data, "part")}, self.said("a_mu", "notes")
        for window, values, errors in zip(
            names_along(data, "window"), data.budget.values, data.budget_error.values, strict=True
        ):
            rows = [
                Measured(float(np.nan_to_num(value)), float(error), name)
                for name, value, error in zip(names_along(data, "row"), values, errors, strict=True)
                if np.isfinite(error) and name != "total"
            ]
            sources = {row.name for row in rows} - parts - stated
            kinds = [tuple(row for row in rows if row.name in kind) for kind in (parts, sources, stated)]
            own = tuple(note for note in notes if note.startswith(f"{window}, "))
            digest = self.said("a_mu", "blinded") or None
            yield HvpBudget(f"a_mu [{window}]", kinds[0], kinds[1], kinds[2], own, digest)

    @property
    def blinded(self) -> str:
        """What the pages of a blinded run say; else nothing."""
        if not (digest := self.said("a_mu", "blinded")):
            return ""
        return (
            f"BLINDED ({digest}): all that is linear in averages of correlators has one secret factor; "
            "ratios, such as relative errors, Z_V, effective masses, are free. Stated corrections are added "
            "when it is opened. "
        )


def names_along(data: xarray.Dataset, dim: str) -> list[str]:
    """Labels along a dimension."""
    return [str(name) for name in data[dim].values]


def texts_of(values: Any, errors: Any) -> list[list[str]]:
    """Numbers with their errors, ``[name, row]``."""
    return [with_errors(*each) for each in zip(np.asarray(values), np.asarray(errors), strict=True)]


def table(first: str, names: Sequence[str], values: Any, errors: Any, caption: str, begin: int = 0) -> Table:
    """A column of numbers with errors for each name, ``[name, row]``; rows are numbered from `begin`."""
    columns = texts_of(values, errors)
    numbers = range(begin, begin + len(columns[0]))
    return Table([first, *names], list(zip(numbers, *columns, strict=True)), caption)


def sections(parameters: HvpParameters, store: Store) -> list[Section]:
    """The sections of a finished run."""
    results, workflow, connected = Results(parameters, store), parameters.workflow, parameters.of_connected
    loops = [each for each in accounts(store, workflow) if each.name.startswith("loops")]
    loops = [each for each in loops if each.statistics("iterations")]
    masses = {name: quark.mass for name, quark in parameters.quarks.items()}
    open_walls = wanted(connected) and not parameters.analysis.blind
    return available(
        lambda: budget_section(results),
        lambda: integrand_section(results),
        lambda: bounds_section(results) if parameters.analysis.tail else (),
        lambda: correlator_section(results),
        lambda: z_v_section(results),
        lambda: autocorrelation_section(results),
        lambda: estimators_section(store, connected) if open_walls else (),
        lambda: wall_solves(store, connected),
        lambda: solves_section(loops) if loops else (),
        lambda: spectrum_section(store, workflow, masses) if parameters.deflation else (),
        lambda: gauge_section(store, workflow),
    )


def texts(parameters: HvpParameters, store: Store) -> dict[str, str]:
    """Text files beside the page: the budgets, and all correlators with all their digits."""
    results = Results(parameters, store)
    about = {"blinded": digest} if (digest := results.said("a_mu", "blinded")) else {}
    factors, files = "charges, Z_V^2, 1/L^3", {"a_mu.txt": "\n\n".join(map(str, results.budgets)) + "\n"}
    kinds = ("correlators", results.average, "not included"), ("g", results.a_mu, "included")
    for name, data, kind in kinds:
        values = (data.correlator, data.correlator_error, names_along(data, "part"))
        files[f"{name}.txt"] = correlator_table(*values, {kind: factors, **about})
    return files


def budget_section(results: Results) -> Section:
    """a_mu in all windows: parts, errors by source, and how much of the error is noise."""
    data, notes = results.a_mu, [*results.said("average", "notes"), *results.said("a_mu", "notes")]
    names, rows, windows = (names_along(data, dim) for dim in ("part", "row", "window"))
    values, errors, noise = data.budget.values, data.budget_error.values, data.stochastic.values
    columns = [map(_entry, *both) for both in zip(values, errors, strict=True)]
    caption = f"a_mu {UNITS}, and errors by source"
    budget = Table(["", *windows], list(zip(rows, *columns, strict=True)), caption)
    sources = [k for k, name in enumerate(rows) if name not in names and name != "total"]
    figure = budget_figure(errors[:, sources], [rows[k] for k in sources], windows)
    statistical = errors[:, [rows.index(name) for name in names]]
    gauge = np.sqrt(np.maximum(statistical**2 - np.nan_to_num(noise) ** 2, 0))
    each = np.stack([statistical, noise, gauge], axis=-1).tolist()
    shares = [
        [window, name, *(number if np.isfinite(number) else None for number in numbers)]
        for window, of_window in zip(windows, each, strict=True)
        for name, numbers in zip(names, of_window, strict=True)
    ]
    caption = f"Statistical errors {UNITS}, of noise and of gauge fields"
    errors_apart = Table(["window", "part", "statistical", "noise", "gauge"], shares, caption, digits=3)
    counts = results.said("average", "configurations")
    alike = str(min(counts.values())) if len({*counts.values()}) == 1 else ""
    counted = alike or ", ".join(f"{n} of {part}" for part, n in counts.items())
    text = (
        f"{results.blinded}a_mu = sum over n of w(n) G(n), G(n) folded. Configurations: {counted}. "
        "Statistical errors of parts are correlated; the row `statistical` is that of their sum. "
    )
    text += "".join(f"{note[:1].upper()}{note[1:]}. " for note in notes)
    shown: list[Figure | Table] = [budget, Figure(figure, "Errors of the total by source."), errors_apart]
    return Section("Contribution to a_mu", text, shown)


def _entry(value: float, error: float) -> str:
    if not np.isfinite(error):
        return ""
    return f"({error:.3g})" if not np.isfinite(value) else texts_of([[value]], [[error]])[0][0]


def integrand_section(results: Results) -> Section:
    """w(t) G(t), partial sums and moments by part."""
    data = results.a_mu
    names, windows = names_along(data, "part"), names_along(data, "window")
    both = np.concatenate([data.correlator.values[None], data.correlator_samples.values])
    terms = data.weight.values[0] * fold(both)[..., : data.sizes["slice"]]
    resampling = Resampling(bootstrap=2 * (results.parameters.analysis.bootstrap is not None))
    errors, caption = resampling.error(terms), f"w(t) G(t) {UNITS}, {windows[0]}, G folded"
    tables = [table("t/a", names, terms[0], errors, caption)]
    for window, value, error in zip(windows, data.partial_sum, data.partial_sum_error, strict=True):
        tables.append(table("up to t/a", names, value, error, f"Partial sums {UNITS}, {window}"))
    moments = zip(names, *zip(*texts_of(data.moment, data.moment_error), strict=True), strict=True)
    heads = ["part", *(f"t^{p}, GeV^{2 - p}" for p in data.power.values)]
    tables.append(Table(heads, list(moments), "Time moments of G"))
    figure = Figure(integrand_figure(terms[0], errors, names, windows[0]), f"{caption}.")
    text = f"{results.blinded}Partial sums have no bounds of the tail."
    return Section("Integrand", text, [figure, *tables])


def bounds_section(results: Results) -> Section:
    """Bounding bands of the light and the disconnected part."""
    shown: list[Figure | Table] = []
    for part in names_along(results.a_mu, "bounded"):
        each = results.a_mu.sel(bounded=part).isel(window=0)
        known, window = np.flatnonzero(np.isfinite(each.bound.values[0])), str(each.window.values)
        if len(known):
            figure = bounds_figure(each.bound, each.bound_error, part, window)
            values = (each.bound.values[:, known], each.bound_error.values[:, known])
            caption = f"a_mu {UNITS}, {part}, {window}"
            shown.append(Figure(figure, f"Bounds of the tail, {part}."))
            shown.append(table("n_c", ("lower", "upper"), *values, caption, begin=int(known[0])))
    text = "The tail beyond n_c is between two decays; without a signal the bands are apart, or noise."
    return Section("Bounds of the tails", f"{results.blinded}{text}", shown)


def correlator_section(results: Results) -> Section:
    """C(t) as measured, and effective masses."""
    data = results.average
    names, values = names_along(data, "part"), (data.correlator.values, data.correlator_error.values)
    masses = effective_mass_figure(data.effective_mass, data.effective_mass_error, names)
    text = (
        f"{results.blinded}Slice traces C(t), and products JJ(t) of loops, light - strange; without charges, "
        "Z_V^2 and 1/L^3. Effective masses are of [C(t - 1) + 2 C(t) + C(t + 1)] / 4, which suppresses the "
        "partner of other parity; this smoothing enters no sum."
    )
    figure = Figure(meson_figure(*values, names), "|C(t)|; triangles: negative C(t).")
    listed = table("t/a", names, *values, "C(t), lattice units")
    return Section("Correlators", text, [figure, listed, Figure(masses, "Effective masses.")])


def z_v_section(results: Results) -> Section:
    """Z_V of each part's current, and what the ratio to the conserved current gives at other slices."""
    data = results.a_mu
    ratio, error = data.z_v_ratio.values[:, 1:], data.z_v_ratio_error.values[:, 1:]
    sure = (np.isfinite(ratio) & np.isfinite(error)).tolist()
    known = [
        [text if ok else None for text, ok in zip(*both, strict=True)]
        for both in zip(texts_of(ratio, error), sure, strict=True)
    ]
    (used,) = texts_of([data.z_v], [data.z_v_error])
    rows = [[name, z, *of] for name, z, of in zip(names_along(data, "term"), used, known, strict=True)]
    columns = ["part", "Z_V in use", *(f"ratio at {n}" for n in range(1, data.sizes["slice"]))]
    text = (
        "The ratio is sqrt(S_conserved / S) at a slice, S = [C(t - 1) + 2 C(t) + C(t + 1)] / 4; its change "
        "with t and mass is of order a^2."
    )
    return Section("Z_V", text, [Table(columns, rows)])


def autocorrelation_section(results: Results) -> Section:
    """Integrated autocorrelation times of each part's correlator, by the Gamma method."""
    node = nodes_of(results.store, results.workflow)["average"]
    streams, options = results.parameters.analysis.streams, node["parameters"]
    t, rows = results.average.sizes["time"] // 4, []
    for part, source in zip(options["parts"], options["sources"], strict=True):
        data = open_result(results.store, node["inputs"][source["input"]], workflow=results.workflow)
        values = data.correlator.values[:, source["row"], t]
        try:
            found = gamma_error({part: (values, names_along(data, "config"))}, pattern=streams)
        except InputError as error:
            return Section("Autocorrelations", f"Not computed: {error}.", [])
        tau = texts_of([[found.tau_int]], [[found.tau_int_error]])[0][0]
        naive = float(np.std(values, ddof=1) / np.sqrt(len(values)))
        rows.append([part, tau, f"{found.error / naive:.3g}" if naive else None])
    text = f"tau_int of C(t) at t = {t}, in units of the least spacing of configurations; 1/2: none."
    columns = ["part", "tau_int", "error over that of independent ones"]
    return Section("Autocorrelations", text, [Table(columns, rows)])


def opened(parameters: HvpParameters, store: Store, key: Path) -> list[HvpBudget]:
    """The budgets without the blinding's factor, corrections added. Raises InputError for another key."""
    results = Results(parameters, store)
    if not (digest := results.said("a_mu", "blinded")):
        raise InputError(f"the results of {parameters.workflow} in {store.path} are not blinded")
    blinding, stated = Blinding.of_file(key, digest), parameters.analysis.corrections
    budgets = []
    for window, budget in zip(names_along(results.a_mu, "window"), results.budgets, strict=True):
        corrections = [each.named(name) for name, each in stated.items() if each.window == window]
        budgets.append(budget.opened(blinding.key).corrected(*corrections))
    return budgets
