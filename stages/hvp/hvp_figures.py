"""The figures of a report on a_mu, drawn from plain arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from pipeline.declare.text import figure_text
from stages.shared.figures import legend_above, points, single_axes

UNIT = "$10^{-10}$"


def integrand_figure(terms: ArrayLike, error: ArrayLike, names: Sequence[str], window: str) -> Figure:
    """w(n) G(n) with errors, ``[part, slice]``, in 1e-10."""
    figure, axes = single_axes(4, f"$w(t)\\,G(t)$, {figure_text(window)}, {UNIT}", "$t/a$")
    axes.axhline(0, color="0.6", linewidth=0.8)
    for number, (row, errors, name) in enumerate(
        zip(np.asarray(terms), np.asarray(error), names, strict=True)
    ):
        times = np.arange(len(row)) + 0.08 * (number - len(names) / 2)
        points(axes, times, row, errors, f"C{number}", figure_text(name))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(figure)
    return figure


def bounds_figure(bound: ArrayLike, error: ArrayLike, part: str, window: str) -> Figure:
    """a_mu of a part with its tail at either bound beyond each slice, ``[side, cut]``, in 1e-10."""
    figure, axes = single_axes(3.8, f"$a_\\mu$, {figure_text(part)}, {figure_text(window)}, {UNIT}", "$n_c$")
    for number, (row, errors, side) in enumerate(
        zip(np.asarray(bound), np.asarray(error), ("lower", "upper"), strict=True)
    ):
        known = np.flatnonzero(np.isfinite(row))
        axes.fill_between(
            known, (row - errors)[known], (row + errors)[known], alpha=0.3, color=f"C{number}", linewidth=0
        )
        axes.plot(known, row[known], "o-", markersize=3, color=f"C{number}", label=f"{side} bound")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(figure)
    return figure


def budget_figure(error: ArrayLike, names: Sequence[str], windows: Sequence[str]) -> Figure:
    """Errors of the total by source, in 1e-10, ``[window, source]``; bars, NaN is none."""
    figure, axes = single_axes(0.9 + 0.3 * len(names) * max(1, len(windows) / 3), "", f"error in {UNIT}")
    values = np.nan_to_num(np.asarray(error))
    height = 0.8 / len(windows)
    for number, window in enumerate(windows):
        places = np.arange(len(names)) + height * (number - (len(windows) - 1) / 2)
        axes.barh(places, values[number], height, color=f"C{number}", label=figure_text(window))
    axes.set_yticks(np.arange(len(names)), [figure_text(name) for name in names])
    axes.invert_yaxis()
    legend_above(figure)
    return figure
