"""A finished run as one self-contained HTML page (plots inline, no network) with a plain-text twin.

The engine lays the page out; what stands on it comes as `Section`s from functions that the workflow names.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import floor, inf, isfinite, log10
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipeline.declare.text import literal, literal_lines, text_table
from stages.base.atomic import replacing

if TYPE_CHECKING:
    from jinja2 import Environment
    from matplotlib.figure import Figure as Plot


LONG = 16
"""Letters of a cell beyond which a page may break the cells of its column into lines."""

NO_VALUE = "–"
"""Text of a cell of what was not measured."""

_NUMBER = re.compile(r"[-+]?[\d.]+(\([\d.]+\))?(e[-+]?\d+)?( ?%)?")


@dataclass(frozen=True)
class Figure:
    """A plot, drawn with matplotlib, and what it shows."""

    plot: Plot
    caption: str

    @property
    def svg(self) -> str:
        """The plot as an inline `<svg>` element, the same bytes for the same plot."""
        import matplotlib

        buffer = io.StringIO()
        with matplotlib.rc_context({"svg.hashsalt": "quarkline", "svg.fonttype": "path"}):
            self.plot.savefig(
                buffer, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None}
            )
        text = buffer.getvalue()
        return text[text.index("<svg") :]


class Cell(NamedTuple):
    """A cell as a page shows it; kind: `number`, flush right, or another class of the page's style."""

    text: str
    kind: str = ""
    address: str = ""
    """Where it leads, relative to the page."""


@dataclass(frozen=True)
class Table:
    """Rows of text, numbers or cells; numbers are shown to `digits` significant digits."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    digits: int = 6

    @property
    def filled(self) -> Table:
        """The table without columns that hold no value in any row; its caption names those."""
        kept = [k for k in range(len(self.columns)) if any(_holds(row[k]) for row in self.rows)]
        if not kept or len(kept) == len(self.columns):
            return self
        rows = [[row[k] for k in kept] for row in self.rows]
        empty = "; ".join(name for k, name in enumerate(self.columns) if name and k not in kept)
        caption = f"{self.caption} (no values: {empty})".lstrip() if empty else self.caption
        return Table([self.columns[k] for k in kept], rows, caption, self.digits)

    @property
    def cells(self) -> list[list[str]]:
        """Every cell as text."""
        return [[cell_text(cell, self.digits) for cell in row] for row in self.rows]

    @property
    def shown(self) -> list[list[Cell]]:
        """Every cell as a page shows it."""
        long = [any(len(row[k]) > LONG for row in self.cells) for k in range(len(self.columns))]
        kinds = ["number" if n else "long" if x else "" for n, x in zip(self.numeric, long, strict=True)]
        return [
            [
                cell if isinstance(cell, Cell) else Cell(*each)
                for cell, *each in zip(row, texts, kinds, strict=True)
            ]
            for row, texts in zip(self.rows, self.cells, strict=True)
        ]

    @property
    def numeric(self) -> list[bool]:
        """True for each column that holds only numbers, with or without errors, and is set flush right."""
        return [
            any(row[k] is not None for row in self.rows)
            and all(
                row[k] is None or _NUMBER.fullmatch(text[k])
                for row, text in zip(self.rows, self.cells, strict=True)
            )
            for k in range(len(self.columns))
        ]


@dataclass(frozen=True)
class Details:
    """Preformatted text, folded away until somebody wants it, unless it is `unfolded`."""

    summary: str
    text: str
    unfolded: bool = False


@dataclass(frozen=True)
class Tiles:
    """Numbers that one wants to see first: name and value of each."""

    tiles: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Section:
    """A heading, a sentence or two, and what stands below them: text is a paragraph of its own."""

    title: str
    text: str = ""
    parts: Sequence[Figure | Table | Details | Tiles | str] = ()

    @property
    def anchor(self) -> str:
        """The section's name as the target of a link."""
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")


def write_report(
    folder: Path,
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    texts: Mapping[str, str] | None = None,
    mark: str = "",
    about: Mapping[str, object] | None = None,
) -> Path:
    """Write `index.html`, `tables.txt` and the text files `texts` (by name) into `folder`; return the page.

    Each file is replaced as a whole. A mark, such as '5 of 6 configurations', stands in the title, beside
    every table and figure, and above every text, as a line that begins with '#'. What all results are of,
    by name, stands in the head of the page and of each text.
    """
    head = {name.replace("_", " "): _in_words(value) for name, value in (about or {}).items()}
    lines = "".join(f"# {name}: {text}\n" for name, text in head.items())
    texts = {name: f"{lines}{text}" for name, text in (texts or {}).items()}
    if mark:
        title, sections = f"{title}: {mark}", [_marked(section, mark) for section in sections]
        texts = {name: f"# {mark}\n{text}" for name, text in texts.items()}
    folder.mkdir(parents=True, exist_ok=True)
    page = page_text(title, subtitle, sections, head)
    top = [title, subtitle, *([lines.rstrip()] if lines else [])]
    _replace(folder / "tables.txt", "\n\n".join([*top, *_tables(sections)]) + "\n")
    for name, text in texts.items():
        _replace(folder / name, text)
    return _replace(folder / "index.html", page)


def page_text(title: str, subtitle: str, sections: Sequence[Section], head: Mapping[str, str]) -> str:
    """A self-contained HTML page; head: lines by name under its title."""
    template = templates().get_template("report.html")
    return template.render(title=title, subtitle=subtitle, head=head, sections=sections)


@cache
def templates() -> Environment:
    """Templates of the pages of this package, which share `parts.html`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader(Path(__file__).parent)
    return Environment(loader=loader, autoescape=True, trim_blocks=True, undefined=StrictUndefined)


def _in_words(value: object) -> str:
    """Text of a value, of a list's items, or of a dictionary's names and values."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_in_words(each)}" for name, each in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_in_words(each) for each in value)
    return str(value)


def _marked(section: Section, mark: str) -> Section:
    """A section whose tables and figures have a mark in their captions."""
    parts = [
        replace(part, caption=f"{part.caption} ({mark})".lstrip())
        if isinstance(part, Table | Figure)
        else part
        for part in section.parts
    ]
    return replace(section, parts=parts)


def table_text(table: Table) -> str:
    """A table as aligned plain text under its caption."""
    table = table.filled
    left = [k for k, number in enumerate(table.numeric) if not number]
    head, *lines = text_table(table.columns, table.cells, left, margin="")
    rule = "-" * max(map(len, [head, *lines]))
    return "\n".join([*([table.caption] if table.caption else []), head, rule, *lines])


def _holds(value: object) -> bool:
    """Whether there is anything to read in a cell."""
    text = value.text if isinstance(value, Cell) else value
    return not (text is None or (isinstance(text, str) and text in ("", NO_VALUE)))


def cell_text(value: object, digits: int = 6) -> str:
    """One cell as text; absent values are a dash."""
    if value is None:
        return "-"
    if isinstance(value, Cell):
        return value.text
    if isinstance(value, float):
        return f"{value:.{digits}g}"
    return literal(str(value))


def value_with_error(value: float, error: float) -> str:
    """The physicist's notation: 0.59371(24), two digits of the error; scientific below 1e-3 and above 1e5.

    A missing error (NaN) leaves the bare value; so does an infinite one, or a value that is missing.
    """
    if not (0 < error < inf and isfinite(value)):
        return f"{value:.6g}"
    largest = max(abs(value), error)
    exponent = floor(log10(largest)) if not 1e-3 <= largest < 1e5 else 0
    value, error = value / 10**exponent, float(f"{error / 10**exponent:.1e}")
    decimals = max(0, 1 - floor(log10(error)))
    shown_error = f"{error:.{decimals}f}" if error >= 1 and decimals else f"{error * 10**decimals:.0f}"
    suffix = f"e{exponent:+03d}" if exponent else ""
    return f"{value:.{decimals}f}({shown_error}){suffix}"


def _tables(sections: Iterable[Section]) -> Iterator[str]:
    for section in sections:
        if tables := [table_text(part) for part in section.parts if isinstance(part, Table)]:
            yield "\n\n".join([f"# {section.title}", *tables])


def _replace(path: Path, text: str) -> Path:
    with replacing(path) as file:
        file.write(literal_lines(text).encode())
    return path
