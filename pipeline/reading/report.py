"""A finished run as one self-contained HTML page (plots inline, no network) with a plain-text twin.

The engine lays the page out; what stands on it comes as `Section`s from functions that the workflow names.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from math import floor, log10
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plot


@dataclass(frozen=True)
class Figure:
    """A plot, drawn with matplotlib, and what it shows."""

    plot: Plot
    caption: str


@dataclass(frozen=True)
class Table:
    """Rows of text or numbers; numbers are shown to `digits` significant digits."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    digits: int = 6


@dataclass(frozen=True)
class Details:
    """Preformatted text, folded away until somebody wants it."""

    summary: str
    text: str


@dataclass(frozen=True)
class Section:
    """A heading, a sentence or two, and what stands below them."""

    title: str
    text: str = ""
    parts: Sequence[Figure | Table | Details] = ()


def write_report(
    folder: Path,
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    texts: Mapping[str, str] | None = None,
) -> Path:
    """Writes `index.html`, `tables.txt` and the text files `texts` (by name) into `folder`; returns the page.

    Each file is replaced as a whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    page = Template(files("pipeline.reading").joinpath("report.html").read_text(encoding="utf-8")).substitute(
        title=escape(title),
        subtitle=escape(subtitle),
        contents=" ".join(f'<a href="#{_anchor(s)}">{escape(s.title)}</a>' for s in sections),
        body="\n".join(_section_html(section) for section in sections),
    )
    _replace(folder / "tables.txt", "\n\n".join([title, subtitle, *_tables(sections)]) + "\n")
    for name, text in (texts or {}).items():
        _replace(folder / name, text)
    return _replace(folder / "index.html", page)


def table_text(table: Table) -> str:
    """A table as aligned plain text under its caption."""
    rows = [list(table.columns), *([cell_text(cell, table.digits) for cell in row] for row in table.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numeric = _numeric_columns(table)
    lines = [
        "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in rows
    ]
    rule = "-" * max(map(len, lines))
    return "\n".join([*([table.caption] if table.caption else []), lines[0], rule, *lines[1:]])


def cell_text(value: object, digits: int = 6) -> str:
    """One cell as text; absent values are a dash."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return str(value)


def value_with_error(value: float, error: float) -> str:
    """The physicist's notation: 0.59371(24), two digits of the error; scientific below 1e-3 and above 1e5.

    A missing error (NaN) leaves the bare value.
    """
    if not error > 0:
        return f"{value:.6g}"
    largest = max(abs(value), error)
    exponent = floor(log10(largest)) if not 1e-3 <= largest < 1e5 else 0
    value, error = value / 10**exponent, float(f"{error / 10**exponent:.1e}")
    decimals = max(0, 1 - floor(log10(error)))
    shown_error = f"{error:.{decimals}f}" if error >= 1 and decimals else f"{error * 10**decimals:.0f}"
    suffix = f"e{exponent:+03d}" if exponent else ""
    return f"{value:.{decimals}f}({shown_error}){suffix}"


def _tables(sections: Iterable[Section]) -> list[str]:
    return [
        f"# {section.title}\n\n"
        + "\n\n".join(table_text(part) for part in section.parts if isinstance(part, Table))
        for section in sections
        if any(isinstance(part, Table) for part in section.parts)
    ]


def _section_html(section: Section) -> str:
    text = f"<p>{escape(section.text)}</p>" if section.text else ""
    parts = "\n".join(_part_html(part) for part in section.parts)
    return f'<section id="{_anchor(section)}"><h2>{escape(section.title)}</h2>{text}\n{parts}</section>'


def _part_html(part: Figure | Table | Details) -> str:
    if isinstance(part, Figure):
        return f"<figure>{svg(part.plot)}<figcaption>{escape(part.caption)}</figcaption></figure>"
    if isinstance(part, Details):
        return f"<details><summary>{escape(part.summary)}</summary><pre>{escape(part.text)}</pre></details>"
    return _table_html(part)


def _table_html(table: Table) -> str:
    marks = [' class="number"' if number else "" for number in _numeric_columns(table)]
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    head = "".join(f"<th{mark}>{escape(name)}</th>" for name, mark in zip(table.columns, marks, strict=True))
    rows = "\n".join(
        "<tr>"
        + "".join(
            f"<td{mark}>{escape(cell_text(cell, table.digits))}</td>"
            for cell, mark in zip(row, marks, strict=True)
        )
        + "</tr>"
        for row in table.rows
    )
    content = f"{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>"
    return f'<div class="scroll"><table>{content}</table></div>'


_NUMBER = re.compile(r"[-+]?[\d.]+(\([\d.]+\))?(e[-+]?\d+)?( ?%)?")


def _numeric_columns(table: Table) -> list[bool]:
    """Which columns hold only numbers, with or without errors, and are set flush right."""
    return [
        any(row[index] is not None for row in table.rows)
        and all(
            row[index] is None or _NUMBER.fullmatch(cell_text(row[index], table.digits)) is not None
            for row in table.rows
        )
        for index in range(len(table.columns))
    ]


def svg(plot: Plot) -> str:
    """A matplotlib figure as an inline `<svg>` element, the same bytes for the same figure."""
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "quarkline", "svg.fonttype": "path"}):
        plot.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _anchor(section: Section) -> str:
    return re.sub(r"\W+", "-", section.title.lower()).strip("-")


def _replace(path: Path, text: str) -> Path:
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(text, encoding="utf-8")
    return partial.replace(path)
