"""Memory, energy, NVLink traffic and use of each GPU of this process, by CuPy's and NVML's counters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from pipeline.store.provenance import buses
from pipeline.store.record import Facts
from pipeline.worker.energy import Meter, device_meter, nvml_device

Traffic = tuple[int, int]
"""Bytes that were sent and received."""

ALL_LINKS = 2**32 - 1
"""Of a field of NVML: that of all links of a device together."""


@dataclass(frozen=True)
class Gpu:
    """A GPU of this process, by its place on the PCI bus."""

    bus: str

    @property
    def meter(self) -> Meter | None:
        """Counter of energy."""
        return device_meter(self.bus)

    def traffic(self) -> Traffic | None:
        """Bytes that it sent and received over NVLink so far; None where nothing counts them."""
        if (device := nvml_device(self.bus)) is None:
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

    def busy(self, since: float) -> float | None:
        """Mean share of the time in which a kernel ran, since a time in seconds; None if nothing tells.

        NVML holds the samples of some seconds: of a longer time these are the last ones.
        """
        if (device := nvml_device(self.bus)) is None:
            return None
        import pynvml

        kind = pynvml.NVML_GPU_UTILIZATION_SAMPLES
        try:
            _, samples = pynvml.nvmlDeviceGetSamples(device, kind, int(since * 1e6))
        except pynvml.NVMLError:
            return None
        values = [each.sampleValue.uiVal / 100 for each in samples if each.timeStamp]
        return sum(values) / len(values) if values else None


@dataclass
class GpuWatch:
    """Counters of some GPUs since this was made."""

    gpus: Sequence[Gpu]
    _began: float = field(default_factory=time.time)
    _joules: list[float | None] = field(init=False)
    _traffic: list[Traffic | None] = field(init=False)

    def __post_init__(self) -> None:
        self._joules = [gpu.meter and gpu.meter() for gpu in self.gpus]
        self._traffic = self._now()

    def _now(self) -> list[Traffic | None]:
        """Traffic of GPUs that share what they compute; asking takes some milliseconds."""
        return [gpu.traffic() if len(self.gpus) > 1 else None for gpu in self.gpus]

    def facts(self, most_bytes: Sequence[int]) -> list[Facts]:
        """Facts for a record about each GPU; None where nothing measures one.

        most_bytes: that were taken of each.
        """
        each = zip(self.gpus, most_bytes, self._joules, self._traffic, self._now(), strict=True)
        return [
            {
                "gpu": gpu.bus,
                "device_bytes": taken,
                "joules": None if joules is None or gpu.meter is None else gpu.meter() - joules,
                "busy": gpu.busy(self._began),
                **_since(before, now),
            }
            for gpu, taken, joules, before, now in each
        ]


def _since(before: Traffic | None, now: Traffic | None) -> dict[str, int | None]:
    sent, received = (now[0] - before[0], now[1] - before[1]) if before and now else (None, None)
    return {"nvlink_sent": sent, "nvlink_received": received}


def joules_of(facts: Sequence[Facts]) -> float | None:
    """Joules of all GPUs together; None without any, or where nothing measures one."""
    each = [gpu["joules"] for gpu in facts]
    return None if not each or None in each else sum(each)


def watch(backend: str) -> GpuWatch | None:
    """Begin to watch the GPUs of this process; None on the CPU."""
    return GpuWatch(_gpus()) if backend == "cuda" else None


@cache
def _gpus() -> tuple[Gpu, ...]:
    return tuple(map(Gpu, buses()))
