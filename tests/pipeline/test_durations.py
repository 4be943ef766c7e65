"""Durations as people read them: digits and units by size, rounded to the next and not past it."""

from __future__ import annotations

import pytest

from pipeline.declare.duration import duration_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.0, "0 s"), (2e-5, "0 s"), (0.04123, "0.041 s"), (1.2345, "1.23 s"), (38.46, "38.5 s")),
        *((59.94, "59.9 s"), (59.96, "1m"), (60.15, "1m"), (568.12, "9m 28s"), (3599.4, "59m 59s")),
        *((3599.6, "1h"), (9000, "2h 30m"), (273_600, "3d 4h")),
    ],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
