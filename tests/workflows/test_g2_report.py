"""Sections of reports: what earlier versions recorded, errors in captions, times without kernels."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.reading.account import NodeAccount, time_section
from pipeline.store.record import Record
from workflows import errors_in, solves_row
from workflows.g2_disconnected.report import _choices

KNOWN, ONE_KNOWN = np.array([0.1, 0.2]), np.array([0.1, np.nan])


@pytest.mark.parametrize(
    ("errors", "values", "text"),
    [
        (KNOWN, None, "jackknife errors"),
        (KNOWN, KNOWN, "jackknife errors"),
        (ONE_KNOWN, KNOWN, "jackknife errors; hollow points have none"),
        (ONE_KNOWN, ONE_KNOWN, "jackknife errors"),
        (np.nan * KNOWN, None, "no errors, which take two bins"),
        (np.nan * KNOWN, KNOWN, "no errors, which take two bins (hollow points)"),
    ],
)
def test_captions_say_which_errors_there_are(errors, values, text):
    assert errors_in(errors, values) == text


def test_times_of_solves_leave_out_what_waited_for_kernels() -> None:
    kernels = {"compiled": [18, 29.0, 1e6], "read": [13, 8.5, 1e6]}
    parts = [
        {"node": "operator", "seconds": 9.0, "kernels": {"read": [1, 9.0, 1]}},
        {"node": "propagator", "seconds": 38.0, "kernels": kernels},
    ]
    statistics = {"iterations": [14], "rhs": 10, "residual_max": 1e-7, "full_residual_max": 1e-7}
    cold, warm = (
        [{"node": "propagator", "statistics": {**statistics, "solve_seconds": s}}] for s in (32.0, 0.3)
    )
    worker = {"kernels": {"read": [1, 0.5, 1]}}
    first = Record(node="mesons", transient=cold, parts=parts, seconds=48.0, worker=worker)
    later = Record(node="mesons", transient=warm, parts=[{**parts[1], "seconds": 0.4, "kernels": {}}])
    solved = [each.without_kernels("solve_seconds", "propagator") for each in (first, later)]
    assert [each["solve_seconds"] for each in solved] == [0.5, 0.3]
    before = Record(node="loops", statistics={"solve_seconds": 3.0})  # of a version that did not record parts
    assert before.without_kernels("solve_seconds") == before.statistics
    assert solves_row("cgnr", solved, 1e-6)[-1] == "40.0"
    text = time_section([NodeAccount("mesons", "meson_two_point", ("a", "b"), (first, later))]).text
    assert "Of these, 47 s went into compiling and reading kernels" in text
    assert "kernels" not in time_section([NodeAccount("mesons", "meson_two_point", ("b",), (later,))]).text


def test_launch_shapes_that_earlier_versions_chose_are_shown() -> None:
    nodes: Any = [
        SimpleNamespace(statistics={"kernel_choices": [["gram nx=8: x=4", "dots n=8: groups=2"]]}.get),
        SimpleNamespace(statistics={"kernel_choices": [["dots n=8: groups=2"], []]}.get),
    ]
    (shown,) = _choices(nodes)
    assert shown.text == "dots n=8: groups=2\ngram nx=8: x=4"
    without: Any = [SimpleNamespace(statistics=lambda name: [])]
    assert _choices(without) == []
