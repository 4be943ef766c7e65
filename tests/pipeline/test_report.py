"""The report page: self-contained, escaped, with a text twin that holds the same tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Plot

from pipeline.reading.report import (
    Details,
    Figure,
    Section,
    Table,
    svg,
    table_text,
    value_with_error,
    write_report,
)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.593712, 0.000241, "0.59371(24)"),
        (-0.0123456, 0.0031, "-0.0123(31)"),
        (1234.5, 67.8, "1234(68)"),
        (12.34, 2.26, "12.3(2.3)"),
        (3.2e-9, 1.1e-9, "3.2(1.1)e-09"),
        (1.5e-9, 2.5e-8, "0.1(2.5)e-08"),
        (0.0, 0.5, "0.00(50)"),
        (9.96, 0.0999, "9.96(10)"),
        (0.5, float("nan"), "0.5"),
        (0.5, 0.0, "0.5"),
    ],
)
def test_value_with_error(value: float, error: float, text: str) -> None:
    assert value_with_error(value, error) == text


def test_table_as_text_sets_numbers_flush_right() -> None:
    table = Table(
        ["name", "C(t)", "count"], [["a", "0.31(2)", 7], ["bb", "-12.5(4)", None]], caption="Two rows"
    )
    assert table_text(table).splitlines() == [
        "Two rows",
        "name      C(t)  count",
        "---------------------",
        "a      0.31(2)      7",
        "bb    -12.5(4)      -",
    ]


def plot() -> Plot:
    drawing = Plot(figsize=(3, 2))
    drawing.subplots().errorbar([0, 1, 2], [1.0, 0.5, 0.2], yerr=0.1)
    return drawing


def test_page_is_self_contained_and_escaped(tmp_path: Path) -> None:
    sections = [
        Section("C(t) & errors", "light < strange", [Figure(plot(), "a <figure>"), Table(["x"], [["<b>"]])]),
        Section("Provenance", parts=[Details("keys", "a < b")]),
    ]
    page = write_report(tmp_path / "report", "title", "subtitle", sections)
    html = page.read_text()
    assert html.count("<svg") == 1 and html.count("<section") == 2
    assert "light &lt; strange" in html and "a &lt;figure&gt;" in html and "<td>&lt;b&gt;</td>" in html
    assert not re.search(r"<(script|link|img|iframe)\b|@import|url\((?!#)", html)
    assert all(f'href="#{name}"' in html and f'id="{name}"' in html for name in ("c-t-errors", "provenance"))
    assert sorted(path.name for path in page.parent.iterdir()) == ["index.html", "tables.txt"]


def test_text_twin_holds_the_tables(tmp_path: Path) -> None:
    table = Table(["t", "C(t)"], [[0, "1.5(2)"]])
    page = write_report(
        tmp_path, "title", "", [Section("Result", parts=[table]), Section("Only prose", "words")]
    )
    text = (page.parent / "tables.txt").read_text()
    assert table_text(table) in text and "# Result" in text and "prose" not in text


def test_same_figure_gives_the_same_bytes() -> None:
    assert svg(plot()) == svg(plot())
