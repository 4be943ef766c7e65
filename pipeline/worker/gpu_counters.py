"""Memory, energy, NVLink traffic and use of each GPU of this process, by CuPy's and NVML's counters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from pipeline.store.provenance import buses
from pipeline.store.record import GpuFacts
from pipeline.worker.energy import device_meter, nvml_device

Traffic = tuple[int, int]
"""Bytes that were sent and received."""

ALL_LINKS = 2**32 - 1
"""Of a field of NVML: that of all links of a device together."""


@dataclass
class GpuWatch:
    """Counters of some GPUs, by their places on the PCI bus, since this was made."""

    buses: Sequence[str]
    _began: float = field(default_factory=time.time)
    _joules: list[float | None] = field(init=False)
    _traffic: list[Traffic | None] = field(init=False)

    def __post_init__(self) -> None:
        self._joules, self._traffic = list(map(_joules, self.buses)), self._traffic_now()

    def _traffic_now(self) -> list[Traffic | None]:
        """Traffic of GPUs that share what they compute; asking takes some milliseconds."""
        return [traffic(bus) if len(self.buses) > 1 else None for bus in self.buses]

    def facts(self, most_bytes: Sequence[int]) -> list[GpuFacts]:
        """Facts for a record about each GPU; None where nothing measures one.

        most_bytes: that were taken of each.
        """
        each = zip(self.buses, most_bytes, self._joules, self._traffic, self._traffic_now(), strict=True)
        return [
            {
                "gpu": bus,
                "device_bytes": taken,
                "joules": None if joules is None or (drawn := _joules(bus)) is None else drawn - joules,
                "busy": busy(bus, self._began),
                "nvlink_sent": now[0] - before[0] if before and now else None,
                "nvlink_received": now[1] - before[1] if before and now else None,
            }
            for bus, taken, joules, before, now in each
        ]


def _joules(bus: str) -> float | None:
    meter = device_meter(bus)
    return meter() if meter else None


def traffic(bus: str) -> Traffic | None:
    """Bytes that a GPU sent and received over NVLink so far; None where nothing counts them."""
    if (device := nvml_device(bus)) is None:
        return None
    import pynvml

    fields = pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX
    try:
        sent, received = pynvml.nvmlDeviceGetFieldValues(device, [(each, ALL_LINKS) for each in fields])
    except pynvml.NVMLError:
        return None
    if sent.nvmlReturn or received.nvmlReturn:
        return None
    return 1024 * int(sent.value.ullVal), 1024 * int(received.value.ullVal)


def busy(bus: str, since: float) -> float | None:
    """Mean share of the time in which a kernel ran, since a time in seconds; None if nothing tells.

    NVML holds the samples of some seconds: of a longer time these are the last ones.
    """
    if (device := nvml_device(bus)) is None:
        return None
    import pynvml

    kind = pynvml.NVML_GPU_UTILIZATION_SAMPLES
    try:
        _, samples = pynvml.nvmlDeviceGetSamples(device, kind, int(since * 1e6))
    except pynvml.NVMLError:
        return None
    values = [each.sampleValue.uiVal / 100 for each in samples if each.timeStamp]
    return sum(values) / len(values) if values else None


def joules_of(facts: Sequence[GpuFacts]) -> float | None:
    """Joules of all GPUs together; None without any, or where nothing measures one."""
    measured = [joules for gpu in facts if (joules := gpu["joules"]) is not None]
    return sum(measured) if measured and len(measured) == len(facts) else None


def watch(backend: str) -> GpuWatch | None:
    """Begin to watch the GPUs of this process; None on the CPU."""
    return GpuWatch(_buses()) if backend == "cuda" else None


@cache
def _buses() -> tuple[str, ...]:
    return tuple(buses())
