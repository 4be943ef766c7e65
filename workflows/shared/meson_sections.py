"""Sections that reports on mesons share: correlators, effective masses, solves, setups, choices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import xarray

from pipeline import Store, open_result
from pipeline.declare.coordinates import describe
from pipeline.declare.text import counted
from pipeline.reading.account import accounts
from pipeline.reading.report import Figure, Section, Table, value_with_error
from stages.loops.loop_figures import convergence_figure
from stages.lqcd.analysis.table import correlator_table
from stages.lqcd.spectroscopy.little_group import of_family
from stages.mesons.meson_figures import effective_mass_figure, meson_figure
from workflows.shared.report_sections import degrees_of_freedom


@dataclass(frozen=True)
class Words:
    """Sentences on channels: which correlators make one, and what effective masses are of."""

    members: str = (
        "Each channel is the mean over the Dirac matrices that belong to it, at p != 0 over those that are "
        "related by rotations and reflections that keep p. All matrices"
    )
    masses: str = (
        "cosh m(t) = [C(t - 1) + C(t + 1)] / [2 C(t)], which is exact for one state, forwards and backwards. "
    )


DIRAC = Words()


def correlator_section(
    average: xarray.Dataset, store: Store, workflow: str, of: str = "", words: Words = DIRAC
) -> Section:
    """C(t) of the channels at each momentum, drawn at the first one; of: a further sentence on them."""
    tables = []
    for number, momentum in enumerate(average.momentum.values):
        each = average.isel(momentum=number, channel=_existing(average, number))
        columns = [
            [value_with_error(float(v), float(e)) for v, e in zip(values, errors, strict=True)]
            for values, errors in zip(each.channel_correlator.values, each.channel_error.values, strict=True)
        ]
        rows = list(zip(range(each.sizes["time"]), *columns, strict=True))
        names = [str(name) for name in each.channel.values]
        tables.append(Table(["t/a", *names], rows, f"C(t) at p = {momentum_text(momentum)}"))
    first = average.isel(momentum=0, channel=_existing(average, 0))
    sizes = open_result(store, "mesons", workflow=workflow).sizes
    freedom = degrees_of_freedom(store, workflow)
    text = (
        f"Means over {counted(sizes['source'], 'source')} and {counted(sizes['config'], 'configuration')} "
        f"with {errors_in(average.channel_error.values)}{f' ({freedom})' if freedom else ''}; t counts from "
        f"the source. {words.members} at all momenta are in mesons.txt. {of}Lattice units, without "
        "renormalisation; flavour-non-singlet mesons have no quark-line disconnected part."
    )
    figure = Figure(
        meson_figure(first.channel_correlator, first.channel_error, list(map(str, first.channel.values))),
        f"C(t) at p = {momentum_text(average.momentum.values[0])}, {errors_in(first.channel_error.values)}.",
    )
    return Section("Meson correlators", text, [figure, *tables])


def mass_section(
    average: xarray.Dataset, names: Sequence[str] = ("pion", "rho"), words: Words = DIRAC
) -> Section:
    """Effective masses of some channels, and effective energies at the other momenta."""
    known, times = list(map(str, average.channel.values)), average.sizes["time"]
    chosen = [
        (known.index(channel), number)
        for name in names
        for number in range(average.sizes["momentum"])
        for channel in of_family(name, [known[k] for k in _existing(average, number)])
    ]
    labels = [f"{known[k]}, p = {momentum_text(average.momentum.values[p])}" for k, p in chosen]
    mass, error = (
        np.array([average[name].values[place] for place in chosen])
        for name in ("effective_mass", "effective_mass_error")
    )
    rows = [
        [t, *(mass_text(float(m), float(e)) for m, e in zip(mass[:, t], error[:, t], strict=True))]
        for t in range(1, times // 2 + 1)
    ]
    text = f"{words.masses}It tends to the ground state's energy as t grows."
    figure = Figure(effective_mass_figure(mass, error, labels), f"Effective masses, {errors_in(error)}.")
    return Section("Effective masses", text, [figure, Table(["t/a", *labels], rows)])


def _existing(average: xarray.Dataset, momentum: int) -> list[int]:
    """Numbers of the channels that there are at a momentum."""
    values = average.channel_correlator.values[:, momentum]
    return [number for number, each in enumerate(values) if not np.isnan(each).all()]


def solves_section(statistics: Sequence[Mapping[str, Any]], tolerance: float) -> Iterator[Section]:
    """Iterations, residuals and cost of propagators, if there are any; statistics: as each chunk recorded."""
    if not statistics:
        return
    iterations = [number for each in statistics for number in each["iterations"]]
    rhs = sum(each["rhs"] for each in statistics)
    seconds = sum(each["solve_seconds"] for each in statistics)
    spread = f"{min(iterations)} / {median(iterations):g} / {max(iterations)}"
    residuals = ("residual_max", "full_residual_max")
    largest = [f"{max(each[name] for each in statistics):.1e}" for name in residuals]
    first = statistics[0]
    row = [first["solver"], rhs, spread, tolerance, *largest]
    columns = ["solver", "rhs", "iterations (min / median / max)", "tolerance", "largest residual"]
    table = Table([*columns, "of the full operator", "ms per rhs"], [[*row, f"{1000 * seconds / rhs:.1f}"]])
    figure = Figure(
        convergence_figure({first["solver"]: first}),
        "The first block of right-hand sides.",
    )
    text = (
        "Residuals are |b - A x| / |b| of the even-odd system, and |b - M x| / |b| of the full operator, "
        "recomputed in double precision, the largest of all columns. Those of every column are in the store."
    )
    yield Section("Solves", text, [figure, table])


def setup_sections(store: Store, workflow: str) -> Iterator[Section]:
    """Times of the multigrid setups and how well they converge, where there are any."""
    for node in accounts(store, workflow):
        if node.stage != "multigrid_setup":
            continue
        rows = []
        for record in node.records:
            statistics = record.statistics
            tried = ", ".join(f"{attempt['rate']:.2g}" for attempt in statistics["attempts"][:-1]) or None
            place = describe(record.coordinates)
            rows.append([place, f"{statistics['setup_seconds']:.2f}", f"{statistics['rate']:.2g}", tried])
        grids = ", ".join(node.records[0].statistics["grids"])
        text = (
            f"Coarse grids: {grids}. The rate is the factor by which a cycle reduces a random residual; a "
            "setup with a poor one is made again from other random vectors."
        )
        columns = ["configuration", "seconds", "rate", "rates of setups not used"]
        yield Section("Multigrid setups", text, [Table(columns, rows)])


def solves_of(store: Store, workflow: str, stage: str) -> Iterator[dict[str, Any]]:
    """Records of a transient stage that solves, each chunk once: they are kept with what was made of it."""
    seen = set()
    for node in accounts(store, workflow):
        for record in node.records:
            for each in record.transient:
                if each["stage"] == stage and each["key"] not in seen:
                    seen.add(each["key"])
                    yield each["statistics"]


def correlator_text(store: Store, workflow: str, axis: str = "gamma") -> str:
    """All correlators at all momenta with all their digits, for plotting programs; axis: of operators."""
    average = open_result(store, "average", workflow=workflow).load()
    freedom = degrees_of_freedom(store, workflow)
    names = [f"{g} p={momentum_text(p)}" for g in average[axis].values for p in average.momentum.values]
    times = average.sizes["time"]
    values, errors = (average[name].values.reshape(-1, times) for name in ("correlator", "correlator_error"))
    return correlator_table(values, errors, names, {"degrees of freedom": freedom} if freedom else {})


def errors_in(errors: np.ndarray) -> str:
    """Kind of errors, for captions."""
    return "jackknife errors" if np.isfinite(errors).any() else "no errors, which take two bins"


def mass_text(mass: float, error: float) -> str | None:
    """None where there is no effective mass."""
    return value_with_error(mass, error) if np.isfinite(mass) else None


def momentum_text(momentum: Any) -> str:
    return ",".join(str(int(n)) for n in momentum)
