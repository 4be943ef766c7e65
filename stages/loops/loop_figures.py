"""The figures of a report, drawn from plain arrays (or `xarray.DataArray`s of the same dimensions)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from pipeline.declare.text import figure_text
from stages.loops.correlator import FLAVOURS
from stages.lqcd.analysis.budget import error_budget
from stages.lqcd.lattice.geometry import DIRECTIONS
from stages.shared.figures import legend_above, points, single_axes

COLOURS = ("#2a6f97", "#c1121f", "#386641", "#6a4c93")
MARKERS = ("o", "s", "D", "^")


def correlator_figure(correlator: ArrayLike, error: ArrayLike) -> Figure:
    """C(t) with errors, ``[flavour, time]``, light and strange above, their difference below."""
    figure = Figure(figsize=(7, 5.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    values, errors = np.asarray(correlator), np.asarray(error)
    for axes, flavour, shift in ((above, 0, -0.08), (above, 1, 0.08), (below, 2, 0.0)):
        _points(axes, values[flavour], errors[flavour], flavour, FLAVOURS[flavour], shift)
    for axes, label in ((above, "$C(t)$"), (below, f"$C(t)$, {FLAVOURS[2]}")):
        axes.axhline(0, color="0.6", linewidth=0.8)
        axes.set_ylabel(label)
        axes.ticklabel_format(axis="y", scilimits=(-2, 3))
    legend_above(figure)
    below.set_xlabel("$t/a$")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def loops_figure(loops: ArrayLike, error: ArrayLike, flavour: int) -> Figure:
    """J_mu(t) with errors for each direction, ``[flavour, direction, time]``, of one flavour."""
    figure, axes = single_axes(3.2, f"$J_\\mu(t)$, {FLAVOURS[flavour]}", "$t/a$")
    values, errors = np.asarray(loops)[flavour], np.asarray(error)[flavour]
    for direction, name in enumerate(DIRECTIONS):
        _points(
            axes, values[direction], errors[direction], direction, f"$J_{name}$", 0.12 * (direction - 1.5)
        )
    axes.axhline(0, color="0.6", linewidth=0.8)
    legend_above(figure)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def error_budget_figure(sloppy: ArrayLike, correction: ArrayLike) -> Figure:
    """Error of a loop value against the number of noise vectors, by source.

    sloppy ``[config, noise, ...]``; correction = fine - sloppy on the fine vectors, ``[config, fine noise,
    ...]``.
    """
    budget = error_budget(sloppy, correction)
    figure, axes = single_axes(3.8, "error of $J_i(t)$ on a configuration", "noise vectors")
    axes.loglog(budget.vectors, budget.sloppy, "o-", color=COLOURS[0], label="sloppy solves")
    for value, style, colour, label in (
        (budget.correction, "--", COLOURS[1], f"correction, {np.shape(correction)[1]} fine vectors"),
        (budget.gauge, ":", COLOURS[2], "spread over configurations"),
    ):
        if value > 0:
            axes.axhline(value, linestyle=style, color=colour, label=label)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    legend_above(figure)
    return figure


def estimator_cost_figure(
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]], measured: Mapping[str, tuple[float, float]]
) -> Figure:
    """Error of C(t) against seconds of work per configuration, both ``[count]``, a curve per estimator.

    measured: the point of each that was reached; the rest of its curve is computed from it.
    """
    figure, axes = single_axes(5.5, "stochastic error of $C(t)$", "seconds of work per configuration")
    for number, (name, (work, error)) in enumerate(curves.items()):
        colour, style = f"C{number % 10}", "--" if number % 2 else "-"
        axes.loglog(work, error, style, color=colour, label=figure_text(name))
        axes.plot(*measured[name], "o", color=colour)
    legend_above(figure)
    return figure


def plaquette_figure(plaquette: ArrayLike, labels: Sequence[str]) -> Figure:
    """Plaquettes of each configuration, ``[config, plane]`` (total, spatial, temporal), normalised to 1."""
    figure, axes = single_axes(3, "plaquette")
    for plane, name in enumerate(("total", "spatial", "temporal")):
        axes.plot(np.asarray(plaquette)[:, plane], MARKERS[plane], color=COLOURS[plane], label=name)
    shown = range(0, len(labels), -(-len(labels) // 12))
    axes.set_xticks(list(shown), [figure_text(labels[number]) for number in shown], rotation=30, ha="right")
    legend_above(figure)
    return figure


def spectrum_figure(eigenvalue: ArrayLike, masses: Mapping[str, float]) -> Figure:
    """Eigenvalues of -D^2 on each configuration, ``[config, eigenvector]``, with 4 m^2 of the masses."""
    figure, axes = single_axes(3.8, "eigenvalue of $-D^2$", "eigenvector")
    for values in np.asarray(eigenvalue):
        axes.semilogy(np.arange(1, len(values) + 1), values, "-", color=COLOURS[0], linewidth=0.8)
    for (name, mass), colour in zip(masses.items(), COLOURS[1:], strict=False):
        axes.axhline(4 * mass**2, linestyle="--", color=colour, label=f"$4m^2$, {figure_text(name)}")
    legend_above(figure)
    return figure


def convergence_figure(solves: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Largest relative residual of a block of right-hand sides against iterations, a curve per solve.

    solves: what `stages.shared.solve_record` recorded of each.
    """
    figure, axes = single_axes(3.8, "$|b - Ax|/|b|$, worst right-hand side", "iterations")
    for number, (name, solve) in enumerate(solves.items()):
        places = solve.get("history_step", 1) * np.arange(len(solve["history"]))
        axes.semilogy(places, solve["history"], color=COLOURS[number % len(COLOURS)], label=figure_text(name))
    axes.legend(frameon=False)
    return figure


def _points(
    axes: Axes, values: np.ndarray, errors: np.ndarray, number: int, label: str, shift: float = 0.0
) -> None:
    points(axes, np.arange(len(values)) + shift, values, errors, COLOURS[number], label, MARKERS[number])
