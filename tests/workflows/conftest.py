"""Fixtures of the command-line tests: a command runner, workers that stay warm, and one finished tiny run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tiny_project import TINY, CommandLine, run_to_its_end


@pytest.fixture
def quarkline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """The command, run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys)


@pytest.fixture
def plain_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty figures in the reports of this test: those of the finished runs that it starts from are drawn."""
    monkeypatch.setattr("pipeline.reading.report.svg", lambda plot: "<svg></svg>")


@pytest.fixture(scope="session")
def cluster(scheduler: str) -> str:
    """For `--cluster`."""
    return scheduler


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, cluster: str) -> Path:
    """A folder in which the tiny workflow `g2.yaml` has run to its end. Only to be copied."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "g2.yaml").write_text(TINY)
    return run_to_its_end(folder, cluster)


@pytest.fixture
def project(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run in the test's own folder; its workflow file."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path / "g2.yaml"
