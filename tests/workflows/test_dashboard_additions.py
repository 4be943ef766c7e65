"""Additions of workflows to the dashboard: panels by the plans that a store has, each once."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_project import TINY

from pipeline import Store, plan, run
from pipeline.planning.manifest_files import write_manifest
from pipeline.reading.dashboard.panel import Addition, Page, Panel
from pipeline.reading.dashboard.watcher import Dashboard
from pipeline.running.clusters.local import Local
from stages.loops.noise_allocation import quantity_text
from workflows.catalogue import dashboard_additions, load_project
from workflows.shared.dashboard import DASHBOARD, SOLVES, trace_error
from workflows.shared.dashboard.samples import ErrorCurve, Samples


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "g2.yaml").write_text(TINY)
    project = load_project(tmp_path / "g2.yaml")
    return plan(project.workflow, Store(tmp_path / "store"), backend="cpu")


def test_a_store_has_the_additions_of_its_workflows(tmp_path: Path, planned: Any) -> None:
    store = Store(tmp_path / "store")
    store.create()
    assert dashboard_additions(store) == [DASHBOARD], "a page that is open before the first run shows it, too"
    for name in (planned.workflow, "somebody_elses", f"{planned.workflow}.partial"):
        write_manifest(store, name, planned.backend, planned.everything, planned.about)
    assert dashboard_additions(store) == [DASHBOARD]


def test_pages_of_several_workflows_are_one_with_the_panels_of_all() -> None:
    own = Panel(lambda campaign: "", lambda: (None, print))
    another = Addition(pages=(replace(SOLVES, rows=((own,), SOLVES.rows[0])), Page("other", "other", ())))
    joined = Addition.of_all([DASHBOARD, another, DASHBOARD])
    assert [page.address for page in joined.pages] == ["quarkline-solves", "other"]
    assert joined.pages[0].rows == (*SOLVES.rows, (own,))
    assert (joined.facts, joined.columns) == (DASHBOARD.facts, DASHBOARD.columns)


def test_the_target_of_a_quantity_is_not_drawn_over_errors_of_another() -> None:
    """C(t) is a product of two J: its errors, and the target, are smaller by orders of magnitude."""
    of = quantity_text({"quantity": "correlator", "window": [2, 8], "flavour": "light"})
    assert of == "C(t), t = 2 ... 8 of light"
    samples = Samples()
    samples.curves = {"loops_light": ErrorCurve("loops_light", [2, 4], [3.4, 2.4])}
    samples.targets = {
        "key": (ErrorCurve(of, [4], [0.013]), 0.017),
        "other": (ErrorCurve("J", [8], [1.0]), 0),
    }
    campaign: Any = SimpleNamespace(own={Samples: samples}.get)
    errors, rounds = trace_error.errors(campaign), trace_error.rounds(campaign)
    assert [line["name"] for line in errors.values()] == [["loops_light"]] * 2
    assert rounds["points"]["y"] == [0.013, 1.0] and rounds["points"]["name"] == [of, "J"]
    assert rounds["targets"]["y"] == [[0.017, 0.017]] and rounds["targets"]["name"] == ["target, 1.70e-02"]
    figure, show = trace_error.draw_rounds()
    show(rounds)
    assert figure.visible and figure.yaxis.axis_label == "error"
    show({kind: {name: [] for name in trace_error.COLUMNS} for kind in rounds})
    assert not figure.visible


def test_pages_of_a_workflow_are_served_while_it_runs(tmp_path: Path, planned: Any) -> None:
    pages: list[str] = []

    def listen(heard: dict[str, Any]) -> None:
        if heard["event"] == "cluster-ready":
            for name in ("", "-solves", "-resources"):
                with urllib.request.urlopen(heard["dashboard"] + name, timeout=20) as answer:
                    pages.append(answer.read().decode())
            signal.raise_signal(signal.SIGINT)

    watcher = Dashboard(additions=dashboard_additions)
    run(planned, tmp_path / "store", cluster=Local(workers=1), listener=listen, watcher=watcher)
    assert all('<a href="quarkline-solves">solves</a>' in page for page in pages) and len(pages) == 3
