"""Energy is that of the GPU of this process, goes into records, and is shown in reports; the CPU has none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
import toy_stages as toys

from pipeline import Outcome, Place, Store, Workflow
from pipeline.reading.account import NodeAccount, time_section
from pipeline.reading.report import Table, table_text
from pipeline.worker.energy import _device_meter, energy_meter


class FakeNvml(SimpleNamespace):
    """Two GPUs; the counter of the second one moves by 5 J at each reading."""

    NVMLError = RuntimeError
    reading = 0

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetHandleByPciBusId(self, bus: str) -> str:  # noqa: N802
        return bus

    def nvmlDeviceGetTotalEnergyConsumption(self, device: str) -> int:  # noqa: N802
        if device != "0000:02:00.0":
            raise self.NVMLError("Not Supported")
        self.reading += 5000
        return self.reading


@pytest.fixture
def on_bus(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Says where this process's GPU sits."""
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    _device_meter.cache_clear()

    def choose(bus: str) -> None:
        device = SimpleNamespace(pci_bus_id=bus)
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(Device=lambda: device)))

    yield choose
    _device_meter.cache_clear()


def test_meter_reads_the_device_of_this_process(on_bus: Callable[[str], None]) -> None:
    on_bus("0000:02:00.0")
    meter = energy_meter("cuda")
    assert meter is not None
    before = meter()
    assert meter() - before == 5.0


def test_device_without_a_counter_has_no_meter(on_bus: Callable[[str], None]) -> None:
    on_bus("0000:01:00.0")
    assert energy_meter("cuda") is None


def test_cpu_has_no_meter_and_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert energy_meter("cpu") is None


def test_records_of_the_cpu_say_that_there_is_none(
    store: Store, compute: Callable[[Workflow], Outcome]
) -> None:
    workflow = Workflow("energy")
    workflow.add(toys.field, place=Place(over={"config": ["a"]}))
    compute(workflow)
    (key,) = store.keys("field")
    assert store.record("field", key)["joules"] is None


def account(name: str, *joules: float | None) -> NodeAccount:
    records = tuple({"seconds": 2.0, "joules": drawn} for drawn in joules)
    return NodeAccount(name, name, tuple("k" for _ in records), records)


def shown(*nodes: NodeAccount) -> str:
    (table,) = (part for part in time_section(nodes).parts if isinstance(part, Table))
    return table_text(table)


def test_report_shows_the_energy_of_nodes_on_gpus() -> None:
    text = shown(account("links", None), account("loops", 610.0, 640.4)).splitlines()
    assert text[0].split()[-1] == "joules"
    assert [line.split()[-1] for line in text[2:]] == ["-", "1250"]
    assert "joules" not in shown(account("links", None))
