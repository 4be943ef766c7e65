"""The report of g2_disconnected on what earlier versions recorded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from workflows.g2_disconnected.report import _choices


def test_launch_shapes_that_earlier_versions_chose_are_shown() -> None:
    nodes: Any = [
        SimpleNamespace(statistics={"kernel_choices": [["gram nx=8: x=4", "dots n=8: groups=2"]]}.get),
        SimpleNamespace(statistics={"kernel_choices": [["dots n=8: groups=2"], []]}.get),
    ]
    (shown,) = _choices(nodes)
    assert shown.text == "dots n=8: groups=2\ngram nx=8: x=4"
    without: Any = [SimpleNamespace(statistics=lambda name: [])]
    assert _choices(without) == []
