"""Fixtures of the command-line tests: a command runner, workers that stay warm, and one finished tiny run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import LocalCluster
from tiny_project import TINY, CommandLine, run_to_its_end


@pytest.fixture
def quarkline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CommandLine:
    """The command, run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return CommandLine(capsys)


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """Address of two workers that stay warm, for `--cluster`."""
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("NUMBA_NUM_THREADS", "1")  # of the workers, which inherit it when they start
        running = LocalCluster(n_workers=2, threads_per_worker=1, resources={"device": 1}, **options)
    with running:
        yield running.scheduler_address


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
