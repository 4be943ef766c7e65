"""Energy is that of the GPU or a part of the CPU's, in records, reports and status, or said to lack."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import toy_stages as toys

from pipeline import Place, Workflow
from pipeline.reading.account import NodeAccount, time_section
from pipeline.reading.report import Table, table_text
from pipeline.reading.status import StageEnergy, energies, energy_lines
from pipeline.running.run_state import RunState
from pipeline.store.record import Record
from pipeline.worker.energy import (
    ProcessorShare,
    _processor_meter,
    busy_seconds,
    device_meter,
    energy_meter,
    nvml_device,
    zones,
)
from pipeline.worker.events import Event


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
    device_meter.cache_clear()
    nvml_device.cache_clear()

    def choose(bus: str) -> None:
        device = SimpleNamespace(pci_bus_id=bus)
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(Device=lambda: device)))

    yield choose
    device_meter.cache_clear()
    nvml_device.cache_clear()


def test_meter_reads_the_device_of_this_process(on_bus: Callable[[str], None]) -> None:
    on_bus("0000:02:00.0")
    meter = energy_meter("cuda")
    assert meter is not None
    before = meter()
    assert meter() - before == 5.0


def test_device_without_a_counter_has_no_meter(on_bus: Callable[[str], None]) -> None:
    on_bus("0000:01:00.0")
    assert energy_meter("cuda") is None


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A machine that shows nobody the counters of its packages."""
    monkeypatch.setattr("pipeline.worker.energy.POWERCAP", tmp_path / "closed")
    _processor_meter.cache_clear()
    yield
    _processor_meter.cache_clear()


@pytest.mark.usefixtures("closed")
def test_cpu_without_counters_has_no_meter_and_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert energy_meter("cpu") is None


def test_records_of_the_cpu_have_its_energy_or_say_that_there_is_none(store, compute):
    workflow = Workflow("energy")
    workflow.add(toys.field, place=Place(over={"config": ["a"]}))
    compute(workflow)
    (key,) = store.keys("field")
    readable = energy_meter("cpu") is not None
    assert (store.record("field", key)["joules"] is not None) == readable


def account(name: str, *joules: float | None) -> NodeAccount:
    records = tuple(Record(seconds=2.0, joules=drawn) for drawn in joules)
    return NodeAccount(name, name, tuple("k" for _ in records), records)


def shown(*nodes: NodeAccount) -> str:
    (table,) = (part for part in time_section(nodes).parts if isinstance(part, Table))
    return table_text(table)


def test_energy_in_reports_and_of_a_campaign() -> None:
    text = shown(account("links", None, 3.0), account("loops", 610.0, 640.4)).splitlines()
    assert text[0].split()[-1] == "joules"
    assert [line.split()[-1] for line in text[2:]] == ["-", "1250"]
    assert "joules" not in shown(account("links", None))

    states = [RunState(), RunState()]
    for state, joules in zip(states, (1200.0, 300.0), strict=True):
        for stage, drawn in (("loops", joules), ("average", None)):
            state.add(Event("done", node="n", stage=stage, key=stage, joules=drawn))
    stages = energies(states)
    assert stages == (StageEnergy("loops", 1500.0, 2, 0), StageEnergy("average", None, 0, 2))
    assert energy_lines(stages) == ["energy: 1.5 kJ (loops 1.5 kJ); without 2 chunks that nothing measured"]
    assert energy_lines(stages[1:])[0].startswith("energy: not measured (2 chunks")


def powercap(root: Path, **zones: tuple[str, int, int]) -> None:
    """A tree as Linux shows it; zones: name, microjoules, where the counter begins again."""
    for folder, (name, microjoules, largest) in zones.items():
        zone = root / folder.replace("_", ":")
        zone.mkdir(parents=True, exist_ok=True)
        for file, content in (("name", name), ("energy_uj", microjoules), ("max_energy_range_uj", largest)):
            (zone / file).write_text(f"{content}\n")


PACKAGES = {
    "intel-rapl_0": ("package-0", 1_000_000, 9_999_999),
    "intel-rapl_0_0": ("core", 7_000_000, 9_999_999),
    "intel-rapl_0_1": ("dram", 2_000_000, 9_999_999),
    "intel-rapl_1": ("package-1", 9_000_000, 9_999_999),
    "intel-rapl_2": ("psys", 3_000_000, 9_999_999),
}


class Clocks:
    """CPU seconds of the machine and of this process."""

    def __init__(self) -> None:
        self.busy = self.own = 100.0

    def share(self, root: Path) -> ProcessorShare:
        return ProcessorShare(zones(root), lambda: self.busy, lambda: self.own)


def test_shares_of_the_packages_are_those_of_cpu_time_and_counters_go_round(tmp_path: Path) -> None:
    powercap(tmp_path, **PACKAGES)
    clocks = Clocks()
    share = clocks.share(tmp_path)
    powercap(tmp_path, **{"intel-rapl_0": ("package-0", 4_000_000, 9_999_999)})  # 3 J
    powercap(tmp_path, **{"intel-rapl_1": ("package-1", 1_000_000, 9_999_999)})  # 2 J, over its end
    powercap(tmp_path, **{"intel-rapl_0_1": ("dram", 5_000_000, 9_999_999)})  # 3 J
    powercap(tmp_path, **{"intel-rapl_0_0": ("core", 9_000_000, 9_999_999)})  # in its package
    clocks.busy, clocks.own = 104.0, 103.0
    assert share.read() == pytest.approx(8 * 3 / 4)
    assert share.read() == pytest.approx(8 * 3 / 4)

    powercap(tmp_path, **PACKAGES)
    clocks = [Clocks(), Clocks()]
    shares = [each.share(tmp_path) for each in clocks]
    powercap(tmp_path, **{"intel-rapl_0": ("package-0", 6_000_000, 9_999_999)})
    for each, own in zip(clocks, (101.0, 103.0), strict=True):
        each.busy, each.own = 104.0, own
    assert sum(share.read() for share in shares) == pytest.approx(5.0)


def test_what_the_machine_does_not_show(tmp_path: Path) -> None:
    powercap(tmp_path, **PACKAGES)
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    assert zones(tmp_path) == []
    assert zones(tmp_path / "absent") == []

    (tmp_path / "stat").write_text("cpu  100 20 30 9999 8888 4 6 0 0 0\ncpu0 1 1\n")
    assert busy_seconds(tmp_path / "stat") == pytest.approx(160 / os.sysconf("SC_CLK_TCK"))
    assert busy_seconds(tmp_path / "absent") is None
