"""Parts that figures of all legs share: axes, points with errors, a legend."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy import isfinite
from numpy.typing import NDArray


def single_axes(height: float, y: str, x: str = "") -> tuple[Figure, Axes]:
    """A figure with one pair of axes, labelled."""
    figure = Figure(figsize=(7, height), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    return figure, axes


def legend_above(figure: Figure) -> None:
    """A legend outside of the axes, where no marker of it looks like a point; none where there are none."""
    if any(axes.get_legend_handles_labels()[0] for axes in figure.axes):
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize="small")


def points(
    axes: Axes, times: NDArray, values: NDArray, errors: NDArray, colour: str, label: str, marker: str = "o"
) -> None:
    """Points with error bars, ``[time]``; those without an error (NaN) are hollow."""
    known = isfinite(errors)
    for chosen, fill in ((known, colour), (~known, "white")):
        if chosen.any():
            axes.errorbar(
                times[chosen],
                values[chosen],
                errors[chosen] if fill == colour else None,
                fmt=marker,
                color=colour,
                markerfacecolor=fill,
                markersize=4,
                capsize=2,
                linewidth=1,
                label=label,
            )
            label = ""
