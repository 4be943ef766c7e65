"""The report's section on gauge configurations, of any workflow that observes them."""

from __future__ import annotations

from pipeline import Store, open_result
from pipeline.reading.report import Figure, Section, Table
from stages.loops.loop_figures import plaquette_figure


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
