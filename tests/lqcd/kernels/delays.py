"""Devices that share a lattice and are late, each by itself: what must wait shows where it does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

MOST = 100_000
"""Nanoseconds, at most, before a launch on a device."""


def delay_launches(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every launch that the devices of a group share wait a random time on each of them."""
    from stages.lqcd.kernels.cuda.compile import _started
    from stages.lqcd.kernels.cuda.tuning.timing import DELAY

    rng, on_all = np.random.default_rng(3), group._queue._on_all

    def late(streams: list[Any], start: Callable[[int, Any], None]) -> None:
        def after(part: int, its_stream: Any) -> None:
            pause = np.uint64(rng.integers(MOST))
            _started(DELAY, group.ids[part], ())((1,), (1,), (pause,), 0, its_stream)
            start(part, its_stream)

        on_all(streams, after)

    monkeypatch.setattr(group._queue, "_on_all", late)
