"""Devices that share a lattice and are late, each by itself: what must wait shows where it does not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

MOST = 100_000
"""Nanoseconds, at most, before a launch on a device."""

DELAY = r"""
extern "C" __device__ __forceinline__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

extern "C" __global__ void delay(unsigned long long duration) {
    const unsigned long long start = nanoseconds();
    while (nanoseconds() - start < duration) __nanosleep(1000);
}
"""


def delay_launches(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every launch that the devices of a group share wait a random time on each of them."""
    rng, on_all = np.random.default_rng(3), group._queue._on_all
    delay = [_delay(device) for device in group.ids]

    def late(streams: list[Any], start: Callable[[int, Any], None]) -> None:
        def after(part: int, its_stream: Any) -> None:
            pause = np.uint64(rng.integers(MOST))
            delay[part]((1,), (1,), (pause,), 0, its_stream)
            start(part, its_stream)

        on_all(streams, after)

    monkeypatch.setattr(group._queue, "_on_all", late)


def _delay(device: int) -> Any:
    """The kernel `delay`, loaded on a device."""
    import cupy

    with cupy.cuda.Device(device):
        return cupy.RawKernel(DELAY, "delay").kernel
