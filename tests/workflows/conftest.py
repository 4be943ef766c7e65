"""Fixtures of the command-line tests: a command runner, warm workers, one finished tiny run, the site."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from distributed import Client
from tiny_project import TINY, CommandLine, plain, run_to_its_end

from stages.lqcd.solvers import trial

ROOT = Path(__file__).parents[2]


@pytest.fixture
def quarkline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """The command, run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys)


@pytest.fixture(autouse=True)
def plain_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty figures in the reports of quick tests, and of the finished runs that they start from, but one of
    `g2_disconnected`. tests/stages/test_figures.py draws all kinds.
    """
    if not any(map(request.node.get_closest_marker, ("slow", "browser", "gpu"))):
        plain(monkeypatch)


@pytest.fixture
def unreported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without sections of a workflow, for tests that run again what has reported, and read none."""
    monkeypatch.setattr("workflows.shared.definition.Project.sections", lambda *_: [])


@pytest.fixture(scope="session")
def cluster(scheduler: str) -> str:
    """For `--cluster`."""
    return scheduler


@pytest.fixture(scope="session")
def quick_trials(cluster: str) -> None:
    """The workers measure a solver by one solve, and not by ten where it takes no time, and drop none."""

    def once() -> None:
        trial.REPEATS, trial.PATIENCE, trial.FIRST_PATIENCE = 1, math.inf, math.inf

    with Client(cluster, set_as_default=False) as client:
        client.run(once)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, cluster: str) -> Path:
    """A folder in which the tiny workflow `g2.yaml` has run to its end. Only to be copied."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "g2.yaml").write_text(TINY)
    return run_to_its_end(folder, cluster, drawn=True)


@pytest.fixture
def project(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished run in the test's own folder; its workflow file."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    return tmp_path / "g2.yaml"


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built where nothing can be fetched."""
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    folder = tmp_path_factory.mktemp("site")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, **nowhere, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200)
    assert built.returncode == 0, built.stderr[-2000:]
    return folder
