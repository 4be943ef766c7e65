"""The figures of a report on mesons, drawn from plain arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from pipeline.declare.text import figure_text


def meson_figure(correlator: ArrayLike, error: ArrayLike, names: Sequence[str]) -> Figure:
    """|C(t)| with errors, ``[channel, time]``, on a logarithmic scale; open where C < 0."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    for number, (values, errors, name) in enumerate(
        zip(np.asarray(correlator), np.asarray(error), names, strict=True)
    ):
        positive = values > 0
        times, colour = np.arange(len(values)), f"C{number}"
        for chosen, fill in ((positive, colour), (~positive, "white")):
            if chosen.any():
                axes.errorbar(
                    times[chosen] + 0.06 * (number - len(names) / 2),
                    np.abs(values[chosen]),
                    errors[chosen],
                    fmt="o",
                    color=colour,
                    markerfacecolor=fill,
                    markersize=4,
                    capsize=2,
                    linewidth=1,
                    label=figure_text(name) if fill == colour or not positive.any() else None,
                )
    axes.set_yscale("log", nonpositive="clip")
    axes.set_xlabel("$t/a$")
    axes.set_ylabel("$|C(t)|$")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(frameon=False, ncols=2, fontsize="small")
    return figure


def effective_mass_figure(mass: ArrayLike, error: ArrayLike, labels: Sequence[str]) -> Figure:
    """m(t) with errors, ``[curve, time]``, up to the middle of the lattice; NaN is left out."""
    figure, axes = _mass_axes("$a\\,m_\\mathrm{eff}(t)$")
    _draw_masses(axes, np.asarray(mass), np.asarray(error), labels, 0)
    axes.legend(frameon=False, ncols=2, fontsize="small")
    return figure


def levels_figure(energy: ArrayLike, error: ArrayLike, labels: Sequence[str], t0: int) -> Figure:
    """E(t) of the levels of a correlation matrix with errors, ``[level, time]``.

    After t0, which a line marks, up to the middle of the lattice; NaN is left out.
    """
    figure, axes = _mass_axes("$a\\,E_n(t, t_0)$")
    _draw_masses(axes, np.asarray(energy), np.asarray(error), labels, t0 + 1)
    axes.axvline(t0, color="0.6", linestyle=":", linewidth=1, label=f"$t_0 = {t0}$")
    axes.legend(frameon=False, ncols=2, fontsize="small")
    return figure


def _mass_axes(label: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, 3.8), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel("$t/a$")
    axes.set_ylabel(label)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure, axes


def _draw_masses(axes: Axes, values: NDArray, errors: NDArray, labels: Sequence[str], first: int) -> None:
    """Curves ``[curve, time]`` from a time on to the middle of the lattice."""
    times = np.arange(first, values.shape[-1] // 2 + 1)
    for number, label in enumerate(labels):
        shown = times[np.isfinite(values[number, times])]
        axes.errorbar(
            shown + 0.05 * (number - len(labels) / 2),
            values[number, shown],
            np.nan_to_num(errors[number, shown]),
            fmt="o",
            color=f"C{number % 10}",
            markersize=4,
            capsize=2,
            linewidth=1,
            label=figure_text(label),
        )
