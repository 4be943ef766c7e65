"""The page on the dashboard: what it gathers from events, and that it is served."""

from __future__ import annotations

import urllib.request
from typing import Any

import pytest
import toy_stages as toys
from bokeh.document import Document
from bokeh.models import ColumnDataSource, PreText

from pipeline import Place, Store, Workflow, plan, run
from pipeline.running.clusters.local import Local
from pipeline.running.monitor import PLAN_TOPIC, Monitor, RunView
from pipeline.running.monitor_page import page


def event(kind: str, key: str, **values: Any) -> dict[str, Any]:
    return {
        "event": kind,
        "key": key,
        "node": "loops",
        "coordinates": {"config": ["a"]},
        "time": 1000.0,
        **values,
    }


@pytest.fixture
def view() -> RunView:
    made = RunView("run-1", {"loops": 5, "mean": 1})
    for key in "pqr":
        made.add(event("started", key))
    made.add(event("progress", "p", done=1, total=9, residual=1e-3, gflops=12.5))
    made.add(event("progress", "p", done=5, total=9, residual=1e-7, gflops=14.0))
    made.add(event("done", "p", time=1007.0))
    made.add(event("failed", "q", time=1012.0))
    return made


def test_the_view_counts_chunks(view: RunView) -> None:
    assert view.counts() == {
        "done": [1, 0],
        "failed": [1, 0],
        "blocked": [0, 0],
        "running": [1, 0],
        "waiting": [2, 1],
    }
    assert view.histories == {"loops a": [(1, 1e-3), (5, 1e-7)]}
    assert list(view.rates["gflops"]) == [(1000.0, 12.5), (1000.0, 14.0)]
    assert view.throughput() == [(1000.0, 0.1), (1010.0, 0.1)]


def test_a_history_is_that_of_the_block_in_hand() -> None:
    made = RunView("run-1", {"loops": 1})
    for done, iterations, residual in ((0, 10, 1e-1), (0, 20, 1e-3), (1, 10, 1e-2)):
        made.add(event("progress", "p", done=done, total=2, iterations=iterations, residual=residual))
    assert made.histories == {"loops a": [(10, 1e-2)]}


def test_failures_are_listed_by_likeness(view: RunView) -> None:
    for key, residual in (("r", "1.5e-9"), ("s", "3.0e-9")):
        view.add(event("failed", key, error=f"residual {residual}"))
    lines = view.failures.lines()
    assert lines[-1] == "failed: loops config=a (2 chunks): residual 1.5e-9 (other chunks: other numbers)"
    document = Document()
    page(lambda: view, None, {}, document)
    shown = [model.text for model in document.roots[0].select({"type": PreText})]
    assert shown == ["\n".join(lines)]


def test_a_new_run_starts_afresh() -> None:
    monitor = Monitor()
    monitor.log_event(PLAN_TOPIC, {"run": "run-1", "missing": {"loops": 2}})
    monitor.log_event("quarkline-run-1", event("done", "p"))
    monitor.log_event("something else", "of no concern")
    assert monitor.view.counts()["done"] == [1]
    monitor.log_event(PLAN_TOPIC, {"run": "run-2", "missing": {"mean": 1}})
    assert monitor.view.counts()["waiting"] == [1]
    assert monitor.view.name == "run-2"


def test_the_page_shows_the_view(view: RunView) -> None:
    document = Document()
    page(lambda: view, None, {}, document)
    tables = [source.data for source in document.select({"type": ColumnDataSource})]
    progress = next(data for data in tables if "waiting" in data)
    assert progress["node"] == ["loops", "mean"]
    assert progress["done"] == [1, 0]
    assert any(data.get("residual") == [[1e-3, 1e-7]] for data in tables)
    assert any(data.get("label") == ["chunks/s", "gflops"] for data in tables)


def test_the_page_is_served_during_a_run(store: Store) -> None:
    w = Workflow("w")
    w.add(toys.field, place=Place(over={"config": ["a"]}))
    pages: list[str] = []

    def listen(heard: dict[str, Any]) -> None:
        if heard["event"] == "cluster-ready":
            with urllib.request.urlopen(heard["dashboard"], timeout=20) as answer:
                pages.append(answer.read().decode())

    run(plan(w, store), store, cluster=Local(workers=1), listener=listen)
    assert "<title>quarkline</title>" in pages[0] and '<meta name="viewport"' in pages[0]
