"""Kernels that are compiled beside a run, on a tiny lattice."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_project import edit

from pipeline import Store, plan
from pipeline.running.clusters import Cluster
from pipeline.running.clusters.cuda import Cuda
from pipeline.running.clusters.local import Local
from workflows import rehearsal
from workflows.catalogue import load_project

SHIPPED = Path(rehearsal.__file__).parent


@pytest.mark.usefixtures("reference_kernels")
@pytest.mark.parametrize("name", ["mesons", "hisq_mesons"])
def test_the_same_is_computed_on_a_tiny_lattice_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ends = rehearsal.rehearse(rehearsal.tiny(load_project(SHIPPED / f"{name}.yaml")))
    assert ends and {(end.kind, end.error) for end in ends} == {("done", "")}
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "cluster", "before", "begun"),
    [
        (None, Local(), False, True),
        (("[8, 8, 8, 16]", "[4, 4, 4, 8]"), Local(), False, False),
        (None, Cuda(), False, False),
        (None, Local(), True, False),
    ],
    ids=["cold", "small", "cuda", "done before"],
)
def test_a_process_compiles_where_that_takes_time(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: tuple[str, str] | None,
    cluster: Cluster,
    before: bool,
    begun: bool,
) -> None:
    monkeypatch.setenv("QUARKLINE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "g2.yaml"
    file.write_text((SHIPPED / "g2_disconnected.yaml").read_text())
    project = load_project(edit(file, *([change] if change else [])), ["masses.light=0.1", "store=s"])
    if before:
        rehearsal._done(project).parent.mkdir(parents=True)
        rehearsal._done(project).touch()
    told: list[Any] = []

    def process(words: list[str], **options: Any) -> Any:
        told.append(words)
        return SimpleNamespace(terminate=lambda: told.append("end"), wait=lambda: None)

    monkeypatch.setattr(subprocess, "Popen", process)
    planned = plan(project.workflow, Store(tmp_path / "store"))
    with rehearsal.rehearsed(project, planned, cluster):
        assert told == (
            [[sys.executable, "-m", "workflows.rehearsal", str(file), "masses.light=0.1"]] if begun else []
        )
    assert told[1:] == (["end"] if begun else [])
    assert rehearsal._done(load_project(file, ["masses.light=0.1"])) == rehearsal._done(project)
