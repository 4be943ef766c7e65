"""Names with formulas, markup and control characters: shown as they are on terminal, page and figure."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from tiny_project import TINY, CommandLine, edit, refused

from pipeline.declare.text import figure_text, literal, text_table
from pipeline.reading.report import Details, Figure, Section, Table, write_report
from stages.loops.loop_figures import convergence_figure, plaquette_figure
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.lattice.formats import write_ildg
from stages.lqcd.lattice.geometry import Lattice
from workflows.display import RunDisplay

HOSTILE = [
    r"$\frac{bad$ $x$.ildg",
    "a\x1b[31m\x07b.ildg",
    "[bold]<b>&amp;.ildg",
    "_\u202egdli.ildg",
    "line\nbreak\r.ildg",
    os.fsdecode(b"\xff.ildg"),
]
SHOWN = [
    r"$\frac{bad$ $x$.ildg",
    r"a\x1b[31m\x07b.ildg",
    "[bold]<b>&amp;.ildg",
    r"_\u202egdli.ildg",
    r"line\nbreak\r.ildg",
    r"\udcff.ildg",
]


def harmless(text: str) -> bool:
    """True if nothing in a text acts on a terminal, and all of it can be written as UTF-8."""
    text.encode()
    return all(character.isprintable() or character == "\n" for character in text)


def test_names_as_text_and_on_the_display(capsys: pytest.CaptureFixture[str]) -> None:
    assert [literal(name) for name in HOSTILE] == SHOWN
    head, *rows = text_table(["name\x1b"], [[name] for name in HOSTILE])
    assert head.strip() == r"name\x1b" and [row.strip() for row in rows] == SHOWN

    with RunDisplay() as display:
        display({"event": "run-started", "time": 0.0, "missing": {"loops[bold]": 1}})
        ended = {"event": "failed", "node": "loops[bold]", "key": "k", "error": f"{HOSTILE[1]}: truncated"}
        display({**ended, "time": 0.0, "stage": "loops", "coordinates": {}})
        display.bars.refresh()
    err = capsys.readouterr().err
    assert harmless(err) and f"failed: loops[bold]: {SHOWN[1]}: truncated" in err


def test_names_in_figures() -> None:
    values = np.ones((len(HOSTILE), 3))
    figure = plaquette_figure(values, HOSTILE)
    figure.canvas.draw()
    drawn = [tick._preprocess_math(tick.get_text())[0].strip() for tick in figure.axes[0].get_xticklabels()]
    assert drawn == SHOWN
    (axes,) = convergence_figure({name: {"history": [1.0, 0.1]} for name in HOSTILE}).axes
    texts = [text._preprocess_math(text.get_text()) for text in axes.get_legend().texts]
    assert [text.strip() for text, _ in texts] == SHOWN
    assert not any(is_formula for _, is_formula in texts)
    assert figure_text("light") == "light"


def test_names_in_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # with the figure
    figure = Figure(plaquette_figure(np.ones((len(HOSTILE), 3)), HOSTILE), HOSTILE[1])
    table = Table(["configuration"], [[name] for name in HOSTILE], caption=HOSTILE[1])
    section = Section(HOSTILE[1], HOSTILE[1], [figure, table, Details(HOSTILE[1], HOSTILE[1])])
    page = write_report(tmp_path, HOSTILE[1], HOSTILE[1], [section], {"more.txt": f"{HOSTILE[1]}\n1\n"})
    for path in (page, tmp_path / "tables.txt", tmp_path / "more.txt"):
        assert harmless(path.read_text(encoding="utf-8")), path
    html, tables = page.read_text(), (tmp_path / "tables.txt").read_text()
    for name in SHOWN:
        assert f"\n{name}\n" in tables
        assert name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") in html


@pytest.fixture
def files(quarkline: CommandLine, tmp_path: Path) -> Path:
    """The tiny workflow on configurations with names that act, where they are not shown literally."""
    (tmp_path / "confs").mkdir()
    for seed, name in enumerate((HOSTILE[0], HOSTILE[1], HOSTILE[3])):
        lattice = Lattice((4, 4, 4, 4))
        write_ildg(tmp_path / "confs" / name, thermalised(lattice, 6.0, 70, str(seed), 2, 1), lattice, 64)
    file = tmp_path / "g2.yaml"
    file.write_text(TINY)
    heatbath = next(line for line in TINY.splitlines() if "heatbath" in line)
    return edit(file, (heatbath, '  files: "confs/*.ildg"'))


@pytest.mark.slow
def test_names_on_a_run(quarkline: CommandLine, files: Path, cluster: str) -> None:
    plan, run = quarkline("plan", files), quarkline("run", files, "--cluster", cluster)
    assert (plan.code, run.code) == (0, 0), run.err
    report = files.parent / "report"
    texts = [plan.out, run.out, run.err, *(path.read_text() for path in report.iterdir())]
    assert all(map(harmless, texts))
    assert all(name in (report / "tables.txt").read_text() for name in (SHOWN[0], SHOWN[1], SHOWN[3]))
    json.loads(quarkline("plan", files, "--json").out)


def test_name_that_is_no_text(quarkline: CommandLine, files: Path) -> None:
    (files.parent / "confs" / HOSTILE[0]).rename(files.parent / "confs" / HOSTILE[-1])
    answer = quarkline("plan", files)
    refused(
        answer, r"confs/\udcff.ildg has a name that is no UTF-8, and it is the configuration's label: rename"
    )
    assert harmless(answer.err)


def test_names_in_errors(quarkline: CommandLine, tmp_path: Path) -> None:
    (tmp_path / HOSTILE[1]).write_text("bring milk")
    answer = quarkline("check", HOSTILE[1])
    assert answer.code == 2 and harmless(answer.err) and SHOWN[1] in answer.err
    refused(quarkline("plan", "a\x1b[31m.yaml"), r"a\x1b[31m.yaml: no such workflow file")
