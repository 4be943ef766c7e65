"""Text for people: tables, counts, names as they are.

Durations have a module of their own.
"""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Collection, Sequence


def text_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Collection[int] = (0,),
    margin: str = "  ",
) -> list[str]:
    """Lines of an aligned table in plain text, the head first.

    Args:
        columns: heads of the columns.
        rows: cells, as many in each row as there are columns.
        left: numbers of the columns that are set flush left; the others are set flush right.
        margin: what each line begins with.
    """
    columns, rows = [literal(name) for name in columns], [[literal(cell) for cell in row] for row in rows]
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for k, name in enumerate(columns):
        table.add_column(Text(name), justify="left" if k in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    width = sum(max(map(len, cells)) + 2 for cells in zip(columns, *rows, strict=True))
    page = io.StringIO()
    Console(file=page, force_terminal=False, color_system=None, width=2 * width).print(table)
    return [f"{margin}{line}".rstrip() for line in page.getvalue().splitlines()]


def format_bytes(nbytes: float) -> str:
    """Bytes in the units of memory, as Dask writes them: `11 B`, `1.21 kiB`, `11.77 MiB`."""
    for power, unit in ((50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "kiB")):
        if nbytes >= 0.9 * (size := 2**power):
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} B"


def gigabytes(nbytes: int) -> str:
    """Bytes of a GPU in the units in which cards are sold: `0.0623 GB`, `14.5 GB`, `1,234 GB`."""
    number = nbytes / 1e9
    return f"{number:,.0f} GB" if number >= 100 else f"{number:.3g} GB"


def literal(text: str) -> str:
    """A name on one line of plain text: what would act on a terminal or a page is spelled, as `\\x1b`.

    That is control and formatting characters, separators of lines, and bytes of file names that are no text.
    """
    if text.isprintable():
        return text
    return "".join(_spelled(c) if unicodedata.category(c) in _ACTING else c for c in text)


def reason(error: BaseException) -> str:
    """The text of an error, on a line of 300 letters at most.

    One that quotes a foreign file may have a million.
    """
    return literal(f"{error!s:.300}")


def literal_lines(text: str) -> str:
    """Plain text of several lines, each of them literal."""
    return "\n".join(map(literal, text.split("\n")))


def figure_text(text: str) -> str:
    """A name for a figure of matplotlib: no part of it is a formula, and a legend does not leave it out."""
    shown = literal(text).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


_ACTING = ("Cc", "Cf", "Cs", "Zl", "Zp")


def _spelled(character: str) -> str:
    return ascii(character)[1:-1]


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 chunk`, `3 chunks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def energy_text(joules: float) -> str:
    """`1.23 MJ`: three digits with a unit."""
    for size, unit in ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ")):
        if joules >= size:
            return f"{joules / size:.3g} {unit}"
    return f"{joules:.3g} J"
