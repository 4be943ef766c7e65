"""Pictures of the study of s-step conjugate gradients (`tests/benchmarks/sstep_study.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

LEVELS = {"single": 1e-5, "double": 1e-13}
"""Of the true residual relative to |b|, to which iterations are counted."""
INGREDIENTS = {
    (False, False): ("uniform precision", "#999999"),
    (True, False): ("Gram matrix in twice the precision", "#0072b2"),
    (False, True): ("residuals replaced", "#e69f00"),
    (True, True): ("both", "#d55e00"),
}


def plot(histories: Sequence[dict[str, Any]], to: Path) -> None:
    """True residuals of the longest blocks of each basis and precision, as an SVG file."""
    from matplotlib.figure import Figure

    rows = list(dict.fromkeys((run["model"], run["precision"]) for run in histories))
    bases = list(dict.fromkeys(run["basis"] for run in histories))
    figure = Figure((4 * len(bases), 3 * len(rows)), layout="constrained")
    panels = figure.subplots(len(rows), len(bases), squeeze=False, sharex="row", sharey="row")
    for run in histories:
        longest = max(each["s"] for each in histories if each["basis"] == run["basis"])
        if run["s"] != longest:
            continue
        row = rows.index((run["model"], run["precision"]))
        panel = panels[row, bases.index(run["basis"])]
        label, colour = INGREDIENTS[run["higher"], run["replace"]]
        panel.semilogy(run["iterations"], run["true"], color=colour, label=label)
        panel.set_title(f"{run['model']}, {run['precision']}, {run['basis']}, s = {longest}", fontsize=9)
        panel.set_ylim(top=100)
    for panel in panels[-1]:
        panel.set_xlabel("iterations")
    for panel in panels[:, 0]:
        panel.set_ylabel("true residual / |b|")
    panels[0, 0].legend(fontsize=8)
    figure.savefig(to)


def plot_against_s(histories: Sequence[dict[str, Any]], to: Path) -> None:
    """The least true residual, and iterations to the level, against s: a column for each basis."""
    from matplotlib.figure import Figure

    rows = list(dict.fromkeys((run["model"], run["precision"]) for run in histories))
    bases = list(dict.fromkeys(run["basis"] for run in histories))
    figure = Figure((4 * len(bases), 5 * len(rows)), layout="constrained")
    panels = figure.subplots(2 * len(rows), len(bases), squeeze=False, sharex=True, sharey="row")
    for (row, (model, precision)), (column, basis) in product(enumerate(rows), enumerate(bases)):
        least, reached = panels[2 * row, column], panels[2 * row + 1, column]
        least.set_title(f"{model}, {precision}, {basis}", fontsize=9)
        for (higher, replace), (label, colour) in INGREDIENTS.items():
            kind = {
                "model": model,
                "precision": precision,
                "basis": basis,
                "higher": higher,
                "replace": replace,
            }
            runs = [run for run in histories if kind.items() <= run.items()]
            style = {"color": colour, "marker": "o", "markersize": 3, "label": label}
            least.semilogy(
                [run["s"] for run in runs], [min(run["true"], default=1.0) for run in runs], **style
            )
            took = [(run["s"], _reached(run, LEVELS[precision])) for run in runs]
            took = [pair for pair in took if pair[1] is not None]
            reached.plot([s for s, _ in took], [n for _, n in took], **style)
    for panel in panels[-1]:
        panel.set_xlabel("s")
    for row, (_, precision) in enumerate(rows):
        panels[2 * row, 0].set_ylabel("least true residual / |b|")
        panels[2 * row + 1, 0].set_ylabel(f"iterations to {LEVELS[precision]:g}")
    panels[0, 0].legend(fontsize=8)
    figure.savefig(to)


def plot_all(histories: Sequence[dict[str, Any]], to: Path) -> None:
    """Both pictures."""
    plot(histories, to)
    plot_against_s(histories, to.with_stem(f"{to.stem}-s"))


def _reached(run: dict[str, Any], level: float) -> int | None:
    pairs = zip(run["iterations"], run["true"], strict=True)
    return next((iterations for iterations, true in pairs if true <= level), None)
