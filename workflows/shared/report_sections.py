"""Sections that the reports of all workflows share: gauge configurations, and the choice of a solver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline import Store, open_result
from pipeline.reading.report import Figure, Section, Table
from stages.loops.loop_figures import plaquette_figure
from stages.lqcd.solvers.trial import CONVERGED, reason_of


def gauge_section(store: Store, workflow: str) -> Section:
    """Plaquettes and the distance of the links from SU(3)."""
    observed = open_result(store, "observables", workflow=workflow).load()
    labels = [str(label) for label in observed.config.values]
    rows = [
        [label, *(f"{value:.8f}" for value in planes), f"{trace:+.8f}", f"{deviation:.1e}"]
        for label, planes, trace, deviation in zip(
            labels,
            observed.plaquette.values,
            observed.link_trace.values,
            observed.unitarity_deviation.values,
            strict=True,
        )
    ]
    columns = ["configuration", "plaquette", "spatial", "temporal", "link trace", "|U^dag U - 1|"]
    figure = Figure(plaquette_figure(observed.plaquette, labels), "Plaquettes, normalised to 1.")
    return Section("Gauge configurations", parts=[figure, Table(columns, rows)])


@dataclass(frozen=True)
class Measured:
    """Measurements of a solver on blocks of each kind of systems; how: as of `lqcd.solvers.trial.Trial`."""

    how: str
    iterations: Sequence[float]
    setup_seconds: float
    seconds_per_rhs: Sequence[float]
    seconds: float
    """For all right-hand sides planned, with the setup."""


def choice_section(
    measured: Mapping[str, Measured], chosen: str, planned: int, columns: int, kinds: Sequence[str] = ()
) -> Section:
    """A table of all solvers by name.

    planned: right-hand sides per configuration. columns: of a block that was measured. kinds: names of the
    kinds of systems, where there are several.
    """
    rows = []
    for name, each in measured.items():
        if each.how != CONVERGED:
            rows.append([name, None, None, None, None, reason_of(each.how)])
            continue
        iterations = " / ".join(f"{number:.0f}" for number in each.iterations)
        per_rhs = " / ".join(f"{1000 * seconds:.1f}" for seconds in each.seconds_per_rhs)
        cost = [f"{each.setup_seconds:.2f}", per_rhs, f"{each.seconds:.1f}"]
        rows.append([name, iterations, *cost, "chosen" if name == chosen else ""])
    header = ["solver", "iterations", "setup, s", "ms per rhs", f"s for {planned} rhs", ""]
    of_each = f" Of each solver: {' / '.join(kinds)}." if kinds else ""
    text = (
        f"Measured on {columns} right-hand sides of the first configuration. The last column of "
        "figures counts the right-hand sides that were planned per configuration, and one setup; its "
        f"smallest was taken. The choice stands while the campaign grows.{of_each}"
    )
    return Section("Choice of the solver", text, [Table(header, rows)])
