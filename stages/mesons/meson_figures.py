"""The figures of a report on mesons, drawn from plain arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from pipeline.declare.text import figure_text
from stages.shared.figures import legend_above, points, single_axes


def meson_figure(correlator: ArrayLike, error: ArrayLike, names: Sequence[str]) -> Figure:
    """|C(t)| with errors, ``[channel, time]``, on a logarithmic scale; triangles where C < 0."""
    figure, axes = single_axes(4.2, "$|C(t)|$", "$t/a$")
    for number, (values, errors, name) in enumerate(
        zip(np.asarray(correlator), np.asarray(error), names, strict=True)
    ):
        times, label = np.arange(len(values)) + 0.06 * (number - len(names) / 2), figure_text(name)
        for chosen, marker in ((values > 0, "o"), (values <= 0, "v")):
            if chosen.any():
                here = times[chosen], np.abs(values[chosen]), errors[chosen]
                points(axes, *here, f"C{number}", label, marker)
                label = ""
    axes.set_yscale("log", nonpositive="clip")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_above(figure)
    return figure


def effective_mass_figure(mass: ArrayLike, error: ArrayLike, labels: Sequence[str]) -> Figure:
    """m(t) with errors, ``[curve, time]``, up to the middle of the lattice; NaN is left out."""
    figure, axes = single_axes(3.8, "$a\\,m_\\mathrm{eff}(t)$", "$t/a$")
    _draw_masses(axes, np.asarray(mass), np.asarray(error), labels, 0)
    legend_above(figure)
    return figure


def levels_figure(energy: ArrayLike, error: ArrayLike, labels: Sequence[str], t0: int) -> Figure:
    """E(t) of the levels of a correlation matrix with errors, ``[level, time]``.

    After t0, which a line marks, up to the middle of the lattice; NaN is left out.
    """
    figure, axes = single_axes(3.8, "$a\\,E_n(t, t_0)$", "$t/a$")
    _draw_masses(axes, np.asarray(energy), np.asarray(error), labels, t0 + 1)
    axes.axvline(t0, color="0.6", linestyle=":", linewidth=1, label=f"$t_0 = {t0}$")
    legend_above(figure)
    return figure


def _draw_masses(axes: Axes, values: NDArray, errors: NDArray, labels: Sequence[str], first: int) -> None:
    """Curves ``[curve, time]`` from a time on to the middle of the lattice."""
    times = np.arange(first, values.shape[-1] // 2 + 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for number, label in enumerate(labels):
        shown = times[np.isfinite(values[number, times])]
        places = shown + 0.05 * (number - len(labels) / 2)
        points(
            axes, places, values[number, shown], errors[number, shown], f"C{number % 10}", figure_text(label)
        )
