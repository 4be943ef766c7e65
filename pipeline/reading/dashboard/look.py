"""The look of pages and panels: colours for light and dark, figures, tables, words for what is not known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import cycle
from math import isnan
from typing import TypeVar

from bokeh.document import Document
from bokeh.events import DocumentReady
from bokeh.models import Axis, CustomJS, Div, Legend, Title
from bokeh.palettes import Category10
from bokeh.plotting import figure

from pipeline.declare.text import format_bytes, literal, literal_lines
from pipeline.reading.report import NO_VALUE, Cell, Section, Table, templates

DONE, FAILED, RUNNING, WAITING = "#2f9e5b", "#d1495b", "#e0a030", "#8a8f98"
"""Colours of states."""

NOT_MEASURED = "not measured"

LONG = 60
"""Letters of a cell beyond which it is broken into lines."""

Item = TypeVar("Item")

Columns = Mapping[str, Callable[[Item], object]]
"""Columns of a table by their heads: what each says of an item."""

STYLE = """
:root { color-scheme: light dark; }
html body { box-sizing: border-box; margin: 0 auto; max-width: 1400px; padding: 8px 16px;
       background: #ffffff; color: #1c2026; font: 14px/1.45 system-ui, sans-serif; }
nav { display: flex; flex-wrap: wrap; gap: 4px 18px; padding: 4px 0 10px; }
nav a, a { color: #1f6db5; text-decoration: none; }
@media (prefers-color-scheme: dark) {
  html body { background: #15181c; color: #e3e6ea; }
  nav a, a { color: #7db8f0; }
}
"""
"""Of pages."""

PARTS_STYLE = """
:host { display: block; }
.bk-clearfix { display: block; max-width: 100%; }
.scroll { overflow: auto; max-width: 100%; max-height: 30em; }
table { border-collapse: collapse; font: 13px/1.45 system-ui, sans-serif; }
th, td { text-align: left; padding: 3px 10px 3px 0; border-bottom: 1px solid #8884; white-space: nowrap; }
th { white-space: normal; vertical-align: bottom; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
td.long { white-space: pre-wrap; overflow-wrap: anywhere; min-width: 14em; }
.unknown { color: #8a8f98; }
caption { width: 0; text-align: left; color: #8a8f98; }
caption span { display: block; width: max-content; max-width: calc(100vw - 32px); }
.legend span { display: inline-block; margin-right: 14px; }
.legend i { display: inline-block; box-sizing: border-box; width: 1em; height: 1em;
            margin-right: 4px; vertical-align: -2px; }
.tiles { display: flex; flex-wrap: wrap; gap: 8px; font: 13px system-ui, sans-serif; }
.tile { border: 1px solid #8884; border-radius: 6px; padding: 6px 12px; }
.tile b { display: block; font-size: 20px; font-variant-numeric: tabular-nums; }
h2 { font: 600 15px system-ui, sans-serif; margin: 10px 0 4px; }
p { font: 13px/1.45 system-ui, sans-serif; margin: 2px 0 6px; overflow-wrap: anywhere; }
pre { font-size: 12px; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
a { color: #3b82c4; }
summary { font: 13px system-ui, sans-serif; cursor: pointer; color: #d1495b; overflow-wrap: anywhere;
          white-space: pre-line; }
"""
"""Of what a section holds."""

PAINT = """
const query = window.matchMedia("(prefers-color-scheme: dark)");
const paint = () => {
    const text = query.matches ? "#d5d9de" : "#30353b";
    for (const axis of axes) {
        axis.setv({axis_label_text_color: text, major_label_text_color: text, axis_line_color: "#8a8f98",
                   major_tick_line_color: "#8a8f98", minor_tick_line_color: null});
    }
    for (const legend of legends) { legend.label_text_color = text; }
    for (const title of titles) { title.text_color = text; }
};
query.addEventListener("change", paint);
paint();
"""


def theming(document: Document) -> None:
    """Have a document's figures painted in the colours of the browser's scheme, and again when it changes."""
    models = {
        name: list(document.select({"type": kind}))
        for name, kind in (("axes", Axis), ("legends", Legend), ("titles", Title))
    }
    document.js_on_event(DocumentReady, CustomJS(args=models, code=PAINT))


def html() -> Div:
    """A model of text and tables."""
    return Div(text="", min_width=300, sizing_mode="stretch_width", stylesheets=[PARTS_STYLE])


def html_of(section: Section) -> str:
    """A section with its heading, as HTML."""
    return literal_lines(templates().get_template("section.html").render(section=section))


def table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """A table of text, numbers and links; a dash for None."""
    return Table(list(columns), [[_cell(value) for value in row] for row in rows])


def table_of(columns: Columns[Item], items: Iterable[Item]) -> Table:
    """A row for each item."""
    return table(columns, ([value(item) for value in columns.values()] for item in items))


def _cell(value: object) -> Cell:
    if isinstance(value, Cell):
        return value
    if value is None or (isinstance(value, float) and isnan(value)):
        return Cell(NO_VALUE, "unknown")
    if isinstance(value, (int, float)):
        return Cell(number(value), "number")
    return Cell(literal(str(value)), "long" if len(str(value)) > LONG else "")


def link(text: str, address: str) -> Cell:
    """A cell that leads somewhere; address: relative to the page."""
    return Cell(literal(text), address=address)


def number(value: float | None, unit: str = "") -> str:
    """Four digits of a number, with its unit; None is said in words."""
    if value is None:
        return NOT_MEASURED
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
    return f"{text} {unit}".strip()


def percent(part: float | None) -> str | None:
    """A part of 1 in words; None stays None."""
    return None if part is None else f"{100 * part:.0f} %"


def size(value: float | None) -> str | None:
    """Bytes in words; None stays None."""
    return None if value is None else format_bytes(int(value))


def moment(seconds: float | None) -> str:
    """Date and time of day, of this machine."""
    try:
        return NOT_MEASURED if seconds is None else f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):  # of a damaged line
        return f"{seconds:.4g} s"


def plot(title: str, x: str, y: str, height: int = 300, **options: object) -> figure:
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
        tools="",
        **options,
    )
    made.xaxis.axis_label, made.yaxis.axis_label = x, y
    made.grid.grid_line_color = "#8884"
    made.outline_line_color = "#8884"
    return made


def legend_below(made: figure) -> None:
    """Add a legend below a figure, in two columns: a phone has room for them."""
    options = {"location": "center", "label_text_font_size": "9pt", "border_line_alpha": 0, "margin": 0}
    made.add_layout(Legend(ncols=2, background_fill_alpha=0, **options), "below")


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, the same as long as the names are."""
    return dict(zip(dict.fromkeys(names), cycle(Category10[10]), strict=False))
