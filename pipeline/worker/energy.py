"""Energy that a worker's device has drawn, by the device's own counters.

On a GPU, NVML counts millijoules since its driver was loaded; the difference of two readings is what the
whole device drew between them, idle parts included. The counter of an H200 moves every 100 ms, so that it
says little of shorter work.

On the CPU, Linux shows the counters of the processor packages and of their memory where its administrator
lets everybody read them (RAPL, `/sys/class/powercap`). Several processes share a package. One is given the
part of what all packages drew that its own CPU time is of all CPU time of the machine: parts of workers that
run side by side add up to what was drawn at most, and nothing is counted twice. What packages draw while
nobody computes is nobody's. Neither is what other devices draw: disks, fans, power supplies.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pipeline.store.provenance import buses

Meter = Callable[[], float]
"""Joules so far."""

POWERCAP = Path("/sys/class/powercap")
BUSY = Path("/proc/stat")

COUNTED = ("package", "dram")
"""Beginnings of the names of zones that are added up: cores are a part of their package, and `psys` is the
whole machine."""

INTERVAL = 30.0
"""Seconds between two readings at least: a package at 400 W takes a counter of 65 kJ once round in 164."""


def energy_meter(backend: str) -> Meter | None:
    """The counter of what this process computes on, all its GPUs together; None where nothing measures it."""
    if backend != "cuda":
        return _processor_meter()
    meters = [device_meter(bus) for bus in buses()]
    known = [meter for meter in meters if meter]
    return (lambda: sum(meter() for meter in known)) if len(known) == len(meters) else None


@cache
def nvml_device(bus: str) -> Any:
    """NVML's handle of the device at this place on the PCI bus; None where NVML does not answer.

    The place is the device's own name: numbers depend on what CUDA_VISIBLE_DEVICES shows to this process.
    """
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByPciBusId(bus)
    except pynvml.NVMLError:
        return None


@cache
def device_meter(bus: str) -> Meter | None:
    """The counter of the device at this place on the PCI bus."""
    if (device := nvml_device(bus)) is None:
        return None
    import pynvml

    try:
        pynvml.nvmlDeviceGetTotalEnergyConsumption(device)
    except pynvml.NVMLError:
        return None
    return lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(device) / 1e3


@cache
def _processor_meter() -> Meter | None:
    """The part of this process in the packages' energy; no counter goes round unseen."""
    packages = zones(POWERCAP)
    if not packages or busy_seconds(BUSY) is None:
        return None
    share = ProcessorShare(packages, lambda: busy_seconds(BUSY) or 0.0, time.process_time)
    threading.Thread(target=share.watch, name="energy of the processor", daemon=True).start()
    return share.read


@dataclass
class Zone:
    """A counter of microjoules that begins again at 0 beyond `largest`."""

    path: Path
    largest: int
    last: int

    def drawn(self) -> float:
        """Joules since it was last read."""
        value = int(self.path.read_text())
        difference = value - self.last if value >= self.last else value + self.largest + 1 - self.last
        self.last = value
        return difference / 1e6


def zones(root: Path) -> list[Zone]:
    """The counters of all packages and their memory; none where any of a package cannot be read."""
    try:
        return list(_zones(root))
    except (OSError, ValueError):
        return []


def _zones(root: Path) -> Iterator[Zone]:
    for folder in sorted(root.glob("intel-rapl:*")):
        if (folder / "name").read_text().strip().startswith(COUNTED):
            path = folder / "energy_uj"
            yield Zone(path, int((folder / "max_energy_range_uj").read_text()), int(path.read_text()))


def busy_seconds(path: Path) -> float | None:
    """CPU seconds that all processes of the machine have used; None where Linux does not say."""
    try:
        _, user, nice, system, _idle, _iowait, irq, softirq, *_ = path.read_text().split(maxsplit=9)[:9]
        return sum(map(int, (user, nice, system, irq, softirq))) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


class ProcessorShare:
    """Joules of this process: at each reading its part of what was drawn since the one before."""

    def __init__(self, packages: list[Zone], busy: Meter, own: Meter) -> None:
        self._packages, self._busy, self._own = packages, busy, own
        self._before = busy(), own()
        self._joules = 0.0
        self._lock = threading.Lock()

    def read(self) -> float:
        """Joules so far."""
        with self._lock:
            drawn = sum(zone.drawn() for zone in self._packages)
            busy, own = self._busy(), self._own()
            everybody, mine = busy - self._before[0], own - self._before[1]
            self._before = busy, own
            self._joules += drawn * min(1.0, mine / max(everybody, mine, 1e-9))
            return self._joules

    def watch(self) -> None:
        """Read for ever, so that no counter goes round between two readings."""
        while True:
            time.sleep(INTERVAL)
            self.read()
