"""Sections that the reports of all workflows share: configurations, errors, the choice of a solver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pipeline import Figure, NodeAccount, Section, Store, Table, accounts, value_with_error
from pipeline.planning.manifest import Manifest
from pipeline.reading.result import IncompleteError, load_result
from stages.lqcd.analysis.jackknife import few_degrees_of_freedom
from stages.lqcd.analysis.table import correlator_table
from workflows.shared.ensemble_doubts import parted

if TYPE_CHECKING:
    import xarray

ONE_FIELD = 1e-8
"""Difference of mean plaquettes and link traces below which configurations are taken as one: more than
links stored in single precision change."""


def available(*makers: Callable[[], Section | Iterable[Section]]) -> list[Section]:
    """Sections in their order, without those whose results are not complete."""
    sections: list[Section] = []
    for maker in makers:
        with suppress(IncompleteError):
            made = maker()
            sections += [made] if isinstance(made, Section) else made
    return sections


def loaded(store: Store, workflow: str, name: str) -> xarray.Dataset:
    """A complete result, in memory. Raises IncompleteError."""
    return load_result(store, name, workflow)


def node_of(store: Store, workflow: str, name: str) -> NodeAccount:
    """The records of a node that is complete. Raises IncompleteError."""
    for node in accounts(store, workflow):
        if node.name == name:
            return node
    raise IncompleteError(f"nothing of {name} of {workflow} is in {store.path} yet")


def nodes_of(store: Store, workflow: str) -> dict[str, Mapping[str, Any]]:
    """Nodes as the last run of a workflow declared them: their parameters, dimensions and inputs."""
    manifest = Manifest.read(store, workflow)
    return {name: node.content for name, node in manifest.nodes.items()} if manifest else {}


def with_errors(values: NDArray[np.float64], errors: NDArray[np.float64]) -> list[str]:
    """Numbers with their errors in brackets."""
    return [value_with_error(float(v), float(e)) for v, e in zip(values, errors, strict=True)]


def gauge_section(store: Store, workflow: str) -> Section:
    """Plaquettes and the distance of the links from SU(3)."""
    from stages.loops.loop_figures import plaquette_figure

    observed = loaded(store, workflow, "observables")
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
    text = " ".join(filter(None, (equal_fields(observed), several_ensembles(observed))))
    return Section("Gauge configurations", text, [figure, Table(columns, rows)])


def several_ensembles(observed: xarray.Dataset) -> str:
    """A warning of configurations whose plaquettes do not belong together, or nothing."""
    lattice = observed.attrs["lattice"].split()[0]
    extents = [int(extent) for extent in lattice.split("x")]
    means = dict(zip(map(str, observed.config.values), observed.plaquette.values[:, 0].tolist(), strict=True))
    text = parted(means, dict.fromkeys(means, 6 * prod(extents)))
    return f"Warning: {text}." if text else ""


def equal_fields(observed: xarray.Dataset) -> str:
    """A warning of configurations that are one field in files of different content, or nothing."""
    numbers = np.column_stack([observed.plaquette.values, observed.link_trace.values])
    order = np.lexsort(numbers.T[::-1])
    labels = [str(label) for label in observed.config.values[order]]
    close = np.isclose(numbers[order][1:], numbers[order][:-1], rtol=0, atol=ONE_FIELD).all(axis=1)
    pairs = [f"{labels[k]} and {labels[k + 1]}" for k in np.flatnonzero(close)]
    if not pairs:
        return ""
    return (
        f"Warning: {', '.join(pairs)} agree in plaquettes and link trace to {ONE_FIELD:g}, as the same links "
        "do in two formats or precisions: one configuration under several names counts several times, and "
        "errors come out too small. Keep one of them."
    )


def errors_in(
    errors: NDArray[np.float64], values: NDArray[np.float64] | None = None, freedom: str = ""
) -> str:
    """Kind of errors, for captions; values: of a figure's points, which are hollow without an error.

    freedom: `degrees_of_freedom`, for sentences.
    """
    known, points = np.isfinite(errors), np.isfinite(errors if values is None else values)
    more = f" ({freedom})" if freedom else ""
    if known.any():
        return f"jackknife errors{more}{'; hollow points have none' * bool((points & ~known).any())}"
    return f"no errors{more or ', which take two bins'}{'' if values is None else ' (hollow points)'}"


def average_text(store: Store, workflow: str, names: Sequence[str], prefix: str = "", **metadata: str) -> str:
    """Correlators of an average with all their digits, for plotting programs; names: of each."""
    average, freedom = loaded(store, workflow, f"{prefix}average"), degrees_of_freedom(store, workflow)
    times = average.sizes["time"]
    values, errors = (average[name].values.reshape(-1, times) for name in ("correlator", "correlator_error"))
    about = {**metadata, "degrees of freedom": freedom} if freedom else metadata
    return correlator_table(values, errors, names, about)


def degrees_of_freedom(store: Store, workflow: str) -> str:
    """The degrees of freedom of errors from few jackknife bins, in words; nothing for many."""
    (bins,) = node_of(store, workflow, "average").statistics("bins")
    return few_degrees_of_freedom(int(bins))
