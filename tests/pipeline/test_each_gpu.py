"""Each GPU of a worker that owns two: its memory, energy, use and traffic, without any GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.store.provenance import device, place
from pipeline.worker import gpu_counters
from pipeline.worker.energy import device_meter, energy_meter, nvml_device
from pipeline.worker.memory import DevicePool
from stages.base.gpus import GPUS_PER_WORKER


@dataclass
class FakeGpus:
    """CuPy with two GPUs: each has a pool, and one is the current one."""

    current: int = 0
    totals: list[int] = field(default_factory=lambda: [0, 0])

    def __post_init__(self) -> None:
        gpus = self

        class Device:
            def __init__(self, number: int | None = None) -> None:
                self.id = gpus.current if number is None else number
                self.pci_bus_id = f"0000:0{self.id + 1}:00.0"
                self.mem_info = (100 - 10 * self.id - gpus.totals[self.id], 100)

            def __enter__(self) -> None:
                self.before, gpus.current = gpus.current, self.id

            def __exit__(self, *_: object) -> None:
                gpus.current = self.before

        runtime = SimpleNamespace(getDeviceProperties=lambda number: {"name": b"a GPU"})
        self.cuda = SimpleNamespace(Device=Device, get_device_id=lambda: self.current, runtime=runtime)

    def malloc(self, size: int) -> int:
        if self.totals[self.current] + size > 90:
            raise MemoryError
        self.totals[self.current] += size
        return size

    def total_bytes(self) -> int:
        return self.totals[self.current]

    def free_bytes(self) -> int:
        return 0

    def free_all_blocks(self) -> None:
        self.totals[self.current] = 0


@dataclass
class FakeSpans:
    devices: tuple[int, ...] = (0, 1)
    used_bytes_of_parts: list[int] = field(default_factory=lambda: [0, 0])
    free_bytes_of_parts: list[int] = field(default_factory=lambda: [0, 0])

    def release(self) -> None:
        self.free_bytes_of_parts = [0, 0]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGpus]:
    fake = FakeGpus()
    monkeypatch.setitem(sys.modules, "cupy", fake)  # type: ignore[arg-type]
    monkeypatch.setenv(GPUS_PER_WORKER, "2")
    yield fake


def test_memory_is_watched_on_each_gpu(gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch) -> None:
    spans = FakeSpans()
    monkeypatch.setattr("pipeline.worker.memory.mapped", [spans])
    pool = DevicePool(gpus, 2)
    pool.malloc(10)
    with gpus.cuda.Device(1):
        pool.malloc(30)
    spans.used_bytes_of_parts = [40, 42]
    pool.look()
    assert pool.each == [50, 72] and pool.bytes == 72
    spans.used_bytes_of_parts, spans.free_bytes_of_parts = [0, 40], [40, 2]
    assert pool.free() == min(100 - 10 + 40, 90 - 30 + 2)
    pool.release_unused()
    assert gpus.totals == [0, 0] and spans.free_bytes_of_parts == [0, 0]
    pool.restart()
    assert pool.each == [0, 40]


def test_where_memory_is_short_what_is_mapped_and_unused_makes_room(gpus, monkeypatch):
    pool = DevicePool(gpus, 2)
    pool.malloc(50)
    with pytest.raises(MemoryError):
        pool.malloc(50)
    spans = FakeSpans(free_bytes_of_parts=[40, 40])
    monkeypatch.setattr("pipeline.worker.memory.mapped", [spans])
    assert pool.malloc(50) == 50 and spans.free_bytes_of_parts == [0, 0]


class FakeNvml(SimpleNamespace):
    """Counters that move at each reading: twice as fast on the second GPU."""

    NVMLError = RuntimeError
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 138, 139
    NVML_GPU_UTILIZATION_SAMPLES = 1

    def __init__(self, *, links: bool = True) -> None:
        self.links = links
        self.read: dict[tuple[int, str], int] = {}

    def _count(self, kind: int, device: str, step: int) -> int:
        self.read[kind, device] = self.read.get((kind, device), 0) + step * int(device[6])
        return self.read[kind, device]

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetHandleByPciBusId(self, bus: str) -> str:  # noqa: N802
        return bus

    def nvmlDeviceGetTotalEnergyConsumption(self, device: str) -> int:  # noqa: N802
        return self._count(0, device, 1000)

    def nvmlDeviceGetFieldValues(self, device: str, fields: list[tuple[int, int]]) -> list[Any]:  # noqa: N802
        return [
            SimpleNamespace(
                nvmlReturn=0 if self.links else 3,
                value=SimpleNamespace(ullVal=self._count(number, device, 7 if number == 138 else 5)),
            )
            for number, _ in fields
        ]

    def nvmlDeviceGetSamples(self, device: str, kind: int, since: int) -> tuple[int, list[Any]]:  # noqa: N802
        values = (90, 70) if device[6] == "1" else (50,)
        return 1, [SimpleNamespace(timeStamp=5, sampleValue=SimpleNamespace(uiVal=each)) for each in values]


@pytest.mark.parametrize("links", [True, False])
def test_counters_of_each_gpu(gpus: FakeGpus, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    for cached in (device_meter, nvml_device, gpu_counters._buses, device):
        cached.cache_clear()
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(links=links))
    meter = energy_meter("cuda")
    assert meter is not None
    before = meter()
    assert meter() - before == 3.0
    watching = gpu_counters.watch("cuda")
    assert watching is not None
    first, second = watching.facts([30, 40])
    assert first == {
        "gpu": "0000:01:00.0",
        "device_bytes": 30,
        "joules": 1.0,
        "busy": 0.8,
        "nvlink_sent": 7 * 1024 if links else None,
        "nvlink_received": 5 * 1024 if links else None,
    }
    assert gpu_counters.joules_of([first, second]) == 3.0
    assert gpu_counters.joules_of([first, {"joules": None}]) is None and gpu_counters.joules_of([]) is None
    assert (second["gpu"], second["device_bytes"], second["busy"]) == ("0000:02:00.0", 40, 0.5)
    assert place("cuda").endswith(" GPU 0000:01:00.0 and 0000:02:00.0")
    assert device("cuda") == "2 x a GPU"
    for cached in (device_meter, nvml_device, gpu_counters._buses, device):
        cached.cache_clear()
