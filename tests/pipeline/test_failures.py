"""Failures in the closing table and in the status: each error once, with the chunks that it cost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import toy_stages as toys

from pipeline import Outcome, Place, Workflow, status
from pipeline.running.failures import Failure


def test_the_closing_table_says_each_error_once() -> None:
    read = "c.lime is damaged"
    failures = [
        Failure("observables", {"config": ("c",)}, read),
        Failure("loops", {"config": ("c",), "noise": (0, 1)}, read),
        Failure("loops", {"config": ("c",), "noise": (2, 3)}, read),
        Failure("links", {"config": ("a",)}, "no room"),
        Failure("links", {"config": ("b",)}, "no room"),
        Failure("mean", {}, "too few"),
    ]
    table = Outcome("run-1", "demo", {"loops": Counter(failed=6)}, tuple(failures)).table()
    assert table.splitlines()[4:-1] == [
        "failed: 3 chunks: c.lime is damaged",
        "  observables config=c",
        "  loops config=c noise=0..3 (2 chunks)",
        "failed: links config=a,b (2 chunks): no room",
        "failed: mean: too few",
    ]


def test_errors_that_differ_in_numbers_are_one_line() -> None:
    missed = "missed 1e-10: residual {}.5e-9 after 1000"
    labels = [f"conf.{number:04}" for number in range(500)]
    failures = [Failure("loops", {"config": (c,)}, missed.format(n)) for n, c in enumerate(labels)]
    failures += [Failure("links", {"config": (name,)}, f"{name} is damaged") for name in ("c.1", "c.2")]
    table = Outcome("run-1", "demo", {"loops": Counter(failed=502)}, tuple(failures)).table()
    first = ",".join(labels[:6])
    assert table.splitlines()[4:-1] == [
        f"failed: loops config={first} and 494 others (500 chunks): missed 1e-10: residual 0.5e-9 after 1000 "
        "(other chunks: other numbers)",
        "failed: links config=c.1: c.1 is damaged",
        "failed: links config=c.2: c.2 is damaged",
    ]


def test_status_tells_what_failed_and_where_the_log_is(store, compute):
    w = Workflow("w")
    fragile = w.add(toys.fragile, w.add(toys.field, place=Place(over={"config": ["a", "b"]})), bad=("b",))
    w.add(toys.loops, fragile, place=Place(over={"noise": [0, 1]}), mass=1.0)
    compute(w)
    text, last = str(status(store)), status(store).last_run
    assert last is not None and last.missing == 8 and last.counts["failed"] == 1
    assert "failed: fragile config=b: ValueError: configuration b is bad" in text.splitlines()
    assert f"log: {last.log}" in text and Path(last.log).read_text().count("ValueError") >= 1
