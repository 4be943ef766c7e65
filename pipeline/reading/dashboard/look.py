"""The look of all panels: colours for light and dark, figures, tables, and words for what is not known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import cycle
from math import isnan
from typing import Any

from bokeh.models import Div, Legend
from bokeh.palettes import Category10
from bokeh.plotting import figure

from pipeline.declare.text import literal

DONE, FAILED, RUNNING, WAITING = "#2f9e5b", "#d1495b", "#e0a030", "#8a8f98"
"""Colours of states."""

NOT_MEASURED = "not measured"

TABLE_CSS = """
:host { display: block; }
.bk-clearfix { display: block; max-width: 100%; }
.scroll { overflow: auto; max-width: 100%; max-height: 30em; }
table { border-collapse: collapse; font: 13px/1.45 system-ui, sans-serif; }
th, td { text-align: left; padding: 3px 10px 3px 0; border-bottom: 1px solid #8884; white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
td.long { white-space: pre-wrap; overflow-wrap: anywhere; min-width: 14em; }
.unknown { color: #8a8f98; font-style: italic; }
.tiles { display: flex; flex-wrap: wrap; gap: 8px; font: 13px system-ui, sans-serif; }
.tile { border: 1px solid #8884; border-radius: 6px; padding: 6px 12px; }
.tile b { display: block; font-size: 20px; font-variant-numeric: tabular-nums; }
h2 { font: 600 15px system-ui, sans-serif; margin: 10px 0 4px; }
p { font: 13px/1.45 system-ui, sans-serif; margin: 2px 0 6px; }
pre { font-size: 12px; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
a { color: #3b82c4; }
summary { font: 13px system-ui, sans-serif; cursor: pointer; color: #d1495b; overflow-wrap: anywhere; }
"""


@dataclass(frozen=True)
class Linked:
    """A cell that leads somewhere; address: relative to the page."""

    text: str
    address: str


Cell = str | int | float | Linked | None


def html() -> Div:
    """A panel of text and tables."""
    return Div(text="", min_width=300, sizing_mode="stretch_width", stylesheets=[TABLE_CSS])


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """An HTML table; None is said."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(value: Cell) -> str:
    if value is None or (isinstance(value, float) and isnan(value)):
        return f'<td class="unknown">{NOT_MEASURED}</td>'
    if isinstance(value, Linked):
        return f'<td><a href="{escape(value.address)}">{escape(literal(value.text))}</a></td>'
    if isinstance(value, (int, float)):
        return f'<td class="number">{number(value)}</td>'
    return f"<td{' class=long' if len(value) > 60 else ''}>{escape(literal(value))}</td>"


def tiles(entries: Iterable[tuple[str, str]]) -> str:
    """Numbers that one wants to see first, each with its name."""
    boxes = (f'<div class="tile"><b>{escape(value)}</b>{escape(name)}</div>' for name, value in entries)
    return f'<div class="tiles">{"".join(boxes)}</div>'


def number(value: float | None, unit: str = "") -> str:
    """Four digits of a number, with its unit; None is said in words."""
    if value is None:
        return NOT_MEASURED
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return f"{text} {unit}".strip()


def moment(seconds: float | None) -> str:
    """Date and time of day, of this machine."""
    return NOT_MEASURED if seconds is None else f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"


def plot(title: str, x: str, y: str, height: int = 300, **options: Any) -> Any:
    """A figure that is as wide as its place, without colours of its own behind it."""
    made = figure(
        title=title,
        height=height,
        min_width=300,
        sizing_mode="stretch_width",
        toolbar_location=None,
        background_fill_color=None,
        border_fill_color=None,
        output_backend="canvas",
        **options,
    )
    made.xaxis.axis_label, made.yaxis.axis_label = x, y
    made.grid.grid_line_color = "#8884"
    made.outline_line_color = "#8884"
    return made


def legend_below(made: Any, columns: int = 2) -> None:
    """Add a legend below a figure, in so many columns: a phone has room for them."""
    options = {"location": "center", "label_text_font_size": "9pt", "border_line_alpha": 0, "margin": 0}
    made.add_layout(Legend(ncols=columns, background_fill_alpha=0, **options), "below")


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, the same as long as the names are."""
    return dict(zip(dict.fromkeys(names), cycle(Category10[10]), strict=False))
