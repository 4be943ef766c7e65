"""Report of the workflow `laph_mesons`: correlators, masses, levels, modes, solves, links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import xarray

from pipeline import Figure, Section, Store, Table, accounts, open_result
from stages.mesons.meson_figures import levels_figure
from workflows import (
    available,
    choice_sections,
    correlator_section,
    correlator_texts,
    errors_in,
    gauge_section,
    loaded,
    mass_section,
    mass_text,
    momentum_text,
    neutral_sections,
    setup_sections,
    solves_section,
)
from workflows.laph_mesons.schema import LaphParameters

SOLVED = ("perambulator", "sink_projection", "current_insertion")
"""Stages that solve."""
NEUTRAL = "Neutral mesons, connected part: levels"


def sections(parameters: LaphParameters, store: Store) -> list[Section]:
    """The sections of a finished run."""
    workflow, result = parameters.workflow, partial(loaded, store, parameters.workflow)
    vectors, noise = parameters.distillation.vectors, parameters.noise
    of = f"Quark fields are those of the {vectors} lowest Laplace eigenvectors of each time slice"
    of += f", estimated with {noise.vectors} noise vectors. " if noise else ". "
    solves = [node for node in accounts(store, parameters.workflow) if node.stage in SOLVED]
    statistics = [each.without_kernels("solve_seconds") for node in solves for each in node.records]
    return available(
        lambda: correlator_section(result("average"), store, workflow, of),
        lambda: mass_section(result("average")),
        *neutral_sections(parameters.operators.flavours, store, workflow, of),
        lambda: level_sections(parameters, result("levels")),
        *(
            [lambda: level_sections(parameters, result("neutral_levels"), NEUTRAL)]
            if "neutral" in parameters.operators.flavours
            else []
        ),
        lambda: modes_section(eigenvalues(store, workflow)),
        lambda: solves_section(statistics, parameters.solves.tolerance),
        lambda: setup_sections(store, workflow),
        lambda: choice_sections(store, workflow),
        lambda: gauge_section(store, workflow),
    )


def texts(parameters: LaphParameters, store: Store) -> dict[str, str]:
    """Text files beside the page: all correlators with all their digits, for plotting programs."""
    return correlator_texts(parameters.operators.flavours, store, parameters.workflow)


def level_sections(
    parameters: LaphParameters, levels: xarray.Dataset, title: str = "Levels"
) -> Iterator[Section]:
    """Effective energies of the levels of each channel at each momentum."""
    t0, given = parameters.operators.t0, levels.attrs["parameters"]["bases"]
    text = (
        f"C(t) v = lambda(t, t0) C(t0) v with t0 = {t0}. C is the correlation matrix of the operators that "
        "the caption of a table names; where a semicolon separates rows of operators, their mean matrix. "
        "cosh E(t) = [lambda(t - 1) + lambda(t + 1)] / [2 lambda(t)] (arXiv:0902.1265)."
    )
    for number, name in enumerate(given if isinstance(given, Mapping) else parameters.operators.families):
        chosen = levels.isel(level=np.flatnonzero(levels.basis.values == number))
        names = [f"level {level}" for level in range(chosen.sizes["level"])]
        parts: list[Figure | Table] = []
        for at, momentum in enumerate(levels.momentum.values):
            energy, error = (chosen[name].values[at] for name in ("energy", "energy_error"))
            if np.isnan(chosen.eigenvalue.values[at]).all():
                continue
            lines = [
                [t, *(mass_text(float(m), float(e)) for m, e in zip(energy[:, t], error[:, t], strict=True))]
                for t in range(t0 + 1, levels.sizes["time"] // 2 + 1)
            ]
            place, kind = f"p = {momentum_text(momentum)}", errors_in(error, energy)
            rows = [row for row, _ in given[name][at]] if isinstance(given, Mapping) else given[number]
            operators = "; ".join(", ".join(row) for row in rows)
            parts += [
                Figure(levels_figure(energy, error, names, t0), f"{name}, {place}, {kind}."),
                Table(["t/a", *names], lines, f"{name}, {place}: operators {operators}"),
            ]
        yield Section(f"{title} of {name}", text, parts)


def eigenvalues(store: Store, workflow: str) -> xarray.Dataset:
    """Result of the Laplacian's eigensolves, without the vectors."""
    result = open_result(store, "laplace_eigenvectors", workflow=workflow)
    return result.drop_vars("vectors", errors="ignore").load()


def modes_section(result: xarray.Dataset) -> Section:
    """Eigenvalues of the Laplacian and their residuals."""
    values, residuals = result.eigenvalue.values, result.residual.values
    rows = [
        [label, f"{lowest:.6f}", f"{highest:.6f}", f"{worst / 12:.1e}"]
        for label, lowest, highest, worst in zip(
            result.config.values,
            values.min(axis=(1, 2)),
            values.max(axis=(1, 2)),
            residuals.max(axis=(1, 2)),
            strict=True,
        )
    ]
    text = (
        "Eigenvalues of minus the Laplacian on smeared links over all time slices, lattice units; residuals "
        "|-Laplacian v - lambda v| are recomputed and relative to 12, the largest possible eigenvalue; the "
        "tolerance is that of the squared operator, relative to 36."
    )
    table = Table(["configuration", "lowest", "highest", "largest residual / 12"], rows)
    return Section("Laplace eigenvectors", text, [table])
