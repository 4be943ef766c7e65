"""A tiny workflow file, and the means to edit it and to run commands on it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from stages.lqcd.solvers.trial import Candidate
from workflows.command import main

TINY = """\
workflow: g2_disconnected
ensemble:
  heatbath: {extents: [4, 4, 4, 4], beta: 6.0, configurations: 2, sweeps: 3, overrelaxation: 1, seed: 977}
links: {action: hisq, boundary: antiperiodic}
masses: {light: 0.1, strange: 0.3}
noise:
  kind: z2
  seed: 55
  vectors: 4
  chunk: 2
  dilution: {displacement: 2}
solves:
  solver: block_cgrq
  precision: double-single
  sloppy: {tolerance: 1.0e-3}
  fine: {tolerance: 1.0e-10, vectors: 2}
current: {links: thin}
store: store
report: report
"""


ENGINES = ["Where the time went", "Checks against silent errors", "Provenance"]
"""Headings of the engine's sections in a report."""


@dataclass(frozen=True)
class Answer:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class CommandLine:
    """Runs `quarkline` inside the test process, as its console script does."""

    capture: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str | Path) -> Answer:
        self.capture.readouterr()
        code = main([str(argument) for argument in arguments])
        return Answer(code, *self.capture.readouterr())


def missing(quarkline: CommandLine, file: Path, *options: str) -> dict[str, int]:
    """Number of chunks per node that `plan` says are missing."""
    answer = quarkline("plan", file, "--json", *options)
    assert answer.code == 0, answer.err
    nodes = [chunk["node"] for chunk in json.loads(answer.out)["missing"]]
    return {node: nodes.count(node) for node in nodes}


def edit(file: Path, *changes: tuple[str, str]) -> Path:
    """Replaces text in a workflow file, each of it there exactly once."""
    text = file.read_text()
    for before, after in changes:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    file.write_text(text)
    return file


def plain(patch: pytest.MonkeyPatch) -> None:
    """Figures of reports are not drawn, which takes half a second for each."""
    patch.setattr("pipeline.reading.report.Figure.svg", "<svg></svg>")


def run_to_its_end(folder: Path, cluster: str, name: str = "g2.yaml", *, drawn: bool = False) -> Path:
    """Run a workflow file in its folder, which is returned; its report has figures where they are `drawn`."""
    with pytest.MonkeyPatch.context() as place:
        place.chdir(folder)
        if not drawn:
            plain(place)
        assert main(["run", name, "--cluster", cluster]) == 0
    return folder


def refused(answer: Answer, *parts: str) -> None:
    """One message, no traceback, nothing on standard output, exit code 2."""
    assert answer.code == 2 and answer.out == ""
    assert "Traceback" not in answer.err and answer.err.count("error: ") == 1
    for part in parts:
        assert part in answer.err


def runs_of(name: str, text: str, *, drawn: bool = False) -> tuple[Callable[..., Path], Callable[..., Path]]:
    """Fixtures of a module that calls them `ran` and as it likes: the folder in which a file has run to its
    end, only to be read, and the file in a copy of the folder for each test.
    """
    file = f"{name}.yaml"

    @pytest.fixture(scope="module")
    def ran(tmp_path_factory: pytest.TempPathFactory, cluster: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        (folder / file).write_text(text)
        return run_to_its_end(folder, cluster, file, drawn=drawn)

    @pytest.fixture
    def copied(ran: Path, tmp_path: Path) -> Path:
        shutil.copytree(ran, tmp_path, dirs_exist_ok=True)
        return tmp_path / file

    return ran, copied


def few_candidates(patch: pytest.MonkeyPatch) -> None:
    """`solver: auto` tries one solver in one precision and width: each other one compiles ten kernels."""

    def few(_: object, precision: str, widths: list[int], deflated: Sequence[bool] = (False,)) -> list:
        return [Candidate("block_cgrq", precision, widths[0], low) for low in deflated]

    patch.setattr("workflows.shared.solves_section.candidates", few)
