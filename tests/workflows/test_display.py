"""The progress display, fed with a run's events."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pipeline.running.run_state import RunState, time_left
from pipeline.worker.events import Event
from workflows.display import RunDisplay

PLACE = {"stage": "current_loops", "coordinates": {}, "time": 0.0}
PROGRESS = {"iterations": 57, "residual": 4.2e-6}
ERROR = "conf.1: [Errno 5] Input/output error"
EVENTS: list[dict[str, Any]] = [
    {**PLACE, "event": "run-started", "missing": {"gauge": 1, "loops_light": 2}},
    {"event": "cluster-ready", "dashboard": "http://secret", "message": "/store/.dashboard", **PLACE},
    {"event": "started", "node": "gauge", "key": "g", **PLACE},
    {"event": "done", "node": "gauge", "key": "g", **PLACE},
    {"event": "started", "node": "loops_light", "key": "a", **PLACE},
    {"event": "compiling", "node": "loops_light", "key": "a", "compiled": 0, **PLACE},
    {"event": "compiling", "node": "loops_light", "key": "a", "compiled": 12, **PLACE},
    {"event": "progress", "node": "loops_light", "key": "a", "done": 1, "total": 4, **PROGRESS, **PLACE},
    {"event": "done", "node": "loops_light", "key": "a", **PLACE},
    {"event": "failed", "node": "loops_light", "key": "b", "error": ERROR, **PLACE},
    {"event": "not-kept", "node": "links", "key": "l", "message": "[links] are large", **PLACE},
    {"event": "stopping", "reason": "SIGINT", **PLACE},
    {"event": "run-ended", "status": 1, **PLACE},
]


def shown(capsys: pytest.CaptureFixture[str], *, quiet: bool = False) -> str:
    """What the display writes, control sequences taken out."""
    with RunDisplay(quiet=quiet) as display:
        for event in EVENTS:
            display(event)
            display.bars.refresh()
    out, err = capsys.readouterr()
    assert out == ""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", err)


def test_bars_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    text = shown(capsys)
    assert "dashboard: http://secret" in text and re.search(r"all +[━╸╺]+ 2/3 ", text)
    assert re.search(r"gauge +━+ 1/1", text)
    assert re.search(r"all +[━╸╺]+ 1/3 .*waiting for kernels", text)
    assert re.search(r"loops_light +[━╸╺]+ 0/2 .*waiting for kernels", text)
    assert re.search(r"all +[━╸╺]+ 1/3 .*compiling kernels \(12 so far", text)
    assert re.search(r"loops_light +[━╸╺]+ 0/2 .*compiling kernels ", text)
    assert re.search(r"loops_light +[━╸╺]+ 0/2 .*iterations 57 residual 4.2e-06", text)
    assert re.search(r"loops_light +━+ 2/2", text)
    assert "failed: loops_light: conf.1: [Errno 5] Input/output error" in text


def test_a_line_a_minute_where_there_is_no_terminal(capsys, monkeypatch):
    """Time left is that of the last chunks of each node, or of earlier runs, without compilation."""
    clock = [0.0]
    monkeypatch.setattr("workflows.display.time.monotonic", lambda: clock[0])
    iterations = {"done": 2, "total": 4, "iterations": 7}
    with RunDisplay() as display:
        display({**PLACE, "event": "run-started", "missing": {"a": 4, "b": 1}, "seconds": {"b": 80.0}})
        display({**PLACE, "event": "cluster-ready", "dashboard": "x"})
        for clock[0], event in (
            (1.0, {"event": "started", "node": "a", "key": "k"}),
            (31.0, {"event": "done", "node": "a", "key": "k", "kernels": 20.0}),
            (32.0, {"event": "started", "node": "a", "key": "l"}),
            (62.0, {"event": "done", "node": "a", "key": "l", "kernels": 16.0}),
            (63.0, {"event": "started", "node": "a", "key": "m"}),
            (64.0, {"event": "started", "node": "b", "key": "n"}),
            (130.0, {"event": "progress", "node": "b", "key": "n", **iterations}),
        ):
            display({**PLACE, **event, "time": clock[0]})
    assert capsys.readouterr().err.splitlines() == [
        "dashboard: its address holds a secret, and is printed on a terminal only; see `quarkline dashboard "
        "STORE`",
        "2 of 5 chunks after 1m 2s, about 1m 44s left, a",  # 2 x (10 + 14) / 2 + 80
        "2 of 5 chunks after 2m 10s, about 32 s left, b iterations 7",  # (2 x 12 + 80 / 2) / 2
    ]


def test_nothing_is_said_of_time_that_nothing_tells(capsys, monkeypatch):
    """Of most chunks that are left: those of a node none of which has ended."""
    clock = [0.0]
    monkeypatch.setattr("workflows.display.time.monotonic", lambda: clock[0])
    with RunDisplay() as display:
        display({**PLACE, "event": "run-started", "missing": {"a": 2, "b": 9}})
        display({"event": "started", "node": "a", "key": "k", **PLACE})
        clock[0] = 70.0
        display({**PLACE, "event": "done", "node": "a", "key": "k", "time": 70.0})
    assert capsys.readouterr().err.splitlines() == ["1 of 11 chunks after 1m 10s, a"]


def test_time_left_where_a_chunk_was_computed_again() -> None:
    """As one is whose worker is not trusted any more."""
    state = RunState()
    state.add(Event("run-started", missing={"a": 1, "b": 1}, seconds={"b": 80.0}))
    for seconds in (0.0, 100.0):
        state.add(Event("started", seconds, node="a", key="k"))
        state.add(Event("done", seconds + 30, node="a", key="k"))
    assert time_left(state.seconds_left(state.ended)) == "about 1m 20s left"
    state.ended["b"] = 1
    assert time_left(state.seconds_left(state.ended)) == ""


def test_failures_of_one_kind_are_told_three_times(capsys: pytest.CaptureFixture[str]) -> None:
    with RunDisplay() as display:
        display({**PLACE, "event": "run-started", "missing": {"a": 9}})
        for number in range(5):
            display(
                {"event": "failed", "node": "a", "key": str(number), "error": f"residual {number}", **PLACE}
            )
    assert [line for line in capsys.readouterr().err.splitlines() if "residual" in line] == [
        f"failed: a: residual {number}" for number in range(3)
    ]


def test_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, quiet=True) == ""

    assert shown(capsys, quiet=True) == ""

    assert shown(capsys).splitlines() == [
        "dashboard: its address holds a secret, and is in /store/.dashboard, which only you can read",
        "gauge: 1 chunk",
        "failed: loops_light: conf.1: [Errno 5] Input/output error",
        "loops_light: 2 chunks",
        "warning: [links] are large",
        "stopping (SIGINT): running chunks may finish",
    ]


def test_chunks_of_a_node_that_was_complete(capsys: pytest.CaptureFixture[str]) -> None:
    """As a configuration that is found damaged while chunks that read it are computed."""
    listed = [event for event in EVENTS if event["event"] != "failed"]
    about = {"node": "links", "key": "l", **PLACE}
    found = [{**about, "event": "progress", "done": 1, "total": 2}, {**about, "event": "done"}]
    again = [{"event": "done", "node": "loops_light", "key": key, **PLACE} for key in "ab"]
    with RunDisplay() as display:
        for event in [*listed[:-2], *found, *again]:
            display(event)
    expected = ["gauge: 1 chunk", "links: 1 chunk", "loops_light: 2 chunks"]
    assert [line for line in capsys.readouterr().err.splitlines() if "chunk" in line] == expected
