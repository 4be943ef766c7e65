"""Text for people: tables, counts, names as they are.

Durations have a module of their own.
"""

from __future__ import annotations

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
    from rich.cells import cell_len

    lines = [[literal(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(map(cell_len, cells)) for cells in zip(*lines, strict=True)]

    def padded(k: int, cell: str) -> str:
        blanks = " " * (widths[k] - cell_len(cell))
        return cell + blanks if k in left else blanks + cell

    return [f"{margin}{'  '.join(padded(k, cell) for k, cell in enumerate(row))}".rstrip() for row in lines]


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
