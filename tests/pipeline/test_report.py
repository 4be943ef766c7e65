"""The report page: self-contained, escaped, with a text twin that holds the same tables."""

from __future__ import annotations

import re
from pathlib import Path

from matplotlib.figure import Figure as Plot

from pipeline.reading.report import (
    NO_VALUE,
    Cell,
    Details,
    Figure,
    Section,
    Table,
    table_text,
    value_with_error,
    write_report,
)


def test_value_with_error() -> None:
    for value, error, text in (
        *(
            (0.593712, 0.000241, "0.59371(24)"),
            (-0.0123456, 0.0031, "-0.0123(31)"),
            (1234.5, 67.8, "1234(68)"),
        ),
        *((12.34, 2.26, "12.3(2.3)"), (3.2e-9, 1.1e-9, "3.2(1.1)e-09"), (1.5e-9, 2.5e-8, "0.1(2.5)e-08")),
        *((0.0, 0.5, "0.00(50)"), (9.96, 0.0999, "9.96(10)"), (0.5, float("nan"), "0.5"), (0.5, 0.0, "0.5")),
        *((float("nan"), 0.3, "nan"), (0.5, float("inf"), "0.5"), (float("inf"), 0.3, "inf")),
    ):
        assert value_with_error(value, error) == text


def test_table_as_text_sets_numbers_flush_right() -> None:
    """On pages, long cells may be broken, and numbers and short ones not."""
    table = Table(
        ["name", "C(t)", "count"], [["a", "0.31(2)", 7], ["bb", "-12.5(4)", None]], caption="Two rows"
    )
    shown = "Two rows\nname      C(t)  count\n---------------------\n"
    assert table_text(table) == f"{shown}a      0.31(2)      7\nbb    -12.5(4)      -"

    table = Table(["node", "work", "C(t)"], [["a", "3h 12m (2h 54m to 3h 36m)", 1.5], ["bb", "1 s", 2.5]])
    assert [[cell.kind for cell in row] for row in table.shown] == [["", "long", "number"]] * 2


def test_columns_without_a_value_are_named_and_left_out(tmp_path: Path) -> None:
    rows = [["a", None, 1, "", Cell(NO_VALUE, "unknown")], ["b", None, None, "", None]]
    table = Table(["node", "joules", "files", "", "GPU memory"], rows, "Cost")
    cost = "Cost (no values: joules; GPU memory)"
    shown = [cost, "node  files", "-----------", "a         1", "b         -"]
    assert table_text(table).splitlines() == shown
    page = write_report(tmp_path, "title", "", [Section("Cost", parts=[table])]).read_text()
    assert shown[0] in page and re.findall(r"<th\b[^>]*>(.*?)</th>", page) == ["node", "files"]
    for rows in ([], [[None, None]]):  # nothing to tell apart
        assert Table(["x", "y"], rows).filled.columns == ["x", "y"]


def plot() -> Plot:
    drawing = Plot(figsize=(3, 2))
    drawing.subplots().errorbar([0, 1, 2], [1.0, 0.5, 0.2], yerr=0.1)
    return drawing


def test_page_is_self_contained_and_its_text_twin_holds_the_tables(tmp_path: Path) -> None:
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

    table = Table(["t", "C(t)"], [[0, "1.5(2)"]])
    page = write_report(
        tmp_path, "title", "", [Section("Result", parts=[table]), Section("Only prose", "words")]
    )
    text = (page.parent / "tables.txt").read_text()
    assert table_text(table) in text and "# Result" in text and "prose" not in text


def test_pages_follow_the_scheme_of_the_browser(tmp_path: Path) -> None:
    assert Figure(plot(), "").svg == Figure(plot(), "").svg

    assert Figure(plot(), "").svg == Figure(plot(), "").svg

    page = write_report(tmp_path, "title", "", [Section("x", parts=[Figure(plot(), "")])]).read_text()
    assert '<meta name="color-scheme" content="light dark">' in page
    (dark,) = re.findall(r"@media \(prefers-color-scheme: dark\) \{(.*?)\n\}", page, re.DOTALL)
    assert "--page: #15181c" in dark and re.search(r"figure svg \{ filter: invert", dark)
    assert not re.search(r"(color|background): *#", page.partition(dark)[2].partition("</style>")[0])
