"""Energy that a GPU has drawn, by its own counter.

NVML counts millijoules per device since its driver was loaded; the difference of two readings is what the
whole device drew between them, idle parts included. The counter of an H200 moves every 100 ms, so that it
says little of shorter work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

Meter = Callable[[], float]
"""Joules so far."""


def energy_meter(backend: str) -> Meter | None:
    """The counter of the GPU that this process computes on; None on the CPU and where there is none."""
    if backend != "cuda":
        return None
    import cupy

    return _device_meter(cupy.cuda.Device().pci_bus_id)


@cache
def _device_meter(bus: str) -> Meter | None:
    """The counter of the device at this place on the PCI bus.

    The place is the device's own name: numbers depend on what CUDA_VISIBLE_DEVICES shows to this process.
    """
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByPciBusId(bus)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(device)
    except pynvml.NVMLError:
        return None
    return lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(device) / 1e3
