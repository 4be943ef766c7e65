"""The streams of devices that share a lattice, and the order of what is queued on them (`DeviceGroup`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cupy

from stages.lqcd.kernels.cuda.devices.partition import Partition, SinceMeeting, Work


class DeviceQueue:
    """The streams of a group, and what must be waited for before the next launch."""

    def __init__(self, ids: tuple[int, ...], partition: Partition) -> None:
        self._ids, self._partition = ids, partition
        self._others, self._events = [], []
        for part, device in enumerate(ids):
            with cupy.cuda.Device(device):
                self._events.append(cupy.cuda.Event(disable_timing=True))
                if part:
                    self._others.append(cupy.cuda.Stream(non_blocking=True))
        self.alone_now = False
        self._since = SinceMeeting(self._partition)

    def start(self, work: Work | None, start: Callable[[int, Any], None]) -> None:
        streams = self.streams()
        if not self.alone_now:
            if work is None:
                start(0, streams[0])
                return
            self._fork(streams)
            try:
                self._on_all(streams, start)
            finally:
                self._join(streams)
            return
        if self._since.asks_to_meet(work):
            self._meet(streams)
        if work is None:
            start(0, streams[0])
        else:
            self._on_all(streams, start)
        self._since.enter(work)

    @contextmanager
    def alone(self) -> Iterator[None]:
        if self.alone_now:
            yield
            return
        streams = self.streams()
        self._fork(streams)
        self.alone_now, self._since = True, SinceMeeting(self._partition)
        try:
            yield
        finally:
            self.alone_now = False
            self._join(streams)

    def streams(self) -> list[Any]:
        """The stream of each device."""
        return [cupy.cuda.get_current_stream(), *self._others]

    def _on_all(self, streams: list[Any], start: Callable[[int, Any], None]) -> None:
        for part, stream in enumerate(streams):
            with cupy.cuda.Device(self._ids[part]):
                start(part, stream)

    def _fork(self, streams: list[Any]) -> None:
        """All others wait for the first device."""
        self._events[0].record(streams[0])
        for device, stream in zip(self._ids[1:], streams[1:], strict=True):
            with cupy.cuda.Device(device):
                stream.wait_event(self._events[0])

    def _join(self, streams: list[Any]) -> None:
        """The first device waits for all others."""
        self._record_others(streams)
        for event in self._events[1:]:
            streams[0].wait_event(event)

    def _meet(self, streams: list[Any]) -> None:
        """Every device waits for every other."""
        self._events[0].record(streams[0])
        self._record_others(streams)
        for part, stream in enumerate(streams):
            with cupy.cuda.Device(self._ids[part]):
                for other, event in enumerate(self._events):
                    if other != part:
                        stream.wait_event(event)
        self._since = SinceMeeting(self._partition)

    def _record_others(self, streams: list[Any]) -> None:
        for part in range(1, len(streams)):
            with cupy.cuda.Device(self._ids[part]):
                self._events[part].record(streams[part])
