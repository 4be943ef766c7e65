"""Provenance of a number: code, machine, device, as they go into a chunk's record."""

from __future__ import annotations

import math
import os
import platform
import socket
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from stages.gpus import gpus_per_worker


@cache
def code() -> dict[str, str]:
    """Versions of this package (with its commit, in a checkout), Python and NumPy."""
    try:
        package = version("quarkline")
    except PackageNotFoundError:
        package = "unknown"
    return {
        "quarkline": package,
        "commit": _commit(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def _commit() -> str:
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        return ""
    described = subprocess.run(
        ["git", "-C", str(root), "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip()


@cache
def host() -> str:
    """Name of this machine."""
    return socket.gethostname()


@cache
def device(backend: str) -> str:
    """Name of the GPU, with their number if it is several, or of the processor with its kernels' threads."""
    if backend == "cuda":
        import cupy

        gpus, name = gpus_per_worker(), cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"]
        return name.decode() if gpus == 1 else f"{gpus} x {name.decode()}"
    threads = os.environ.get("NUMBA_NUM_THREADS") or str(os.cpu_count())
    return f"{processor()}, {threads} threads"


def buses() -> list[str]:
    """Places on the PCI bus of the GPUs that this process owns."""
    import cupy

    gpus = gpus_per_worker()
    if gpus == 1:
        return [cupy.cuda.Device().pci_bus_id]
    return [cupy.cuda.Device(gpu).pci_bus_id for gpu in range(gpus)]


def place(backend: str) -> str:
    """Name of the hardware that computes here: the machine, and which of its GPUs."""
    return f"{host()} GPU {' and '.join(buses())}" if backend == "cuda" else host()


def processor() -> str:
    """Name of this machine's processor."""
    """Name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def plain(value: Any) -> Any:
    """Statistics as JSON: NumPy and CuPy values become numbers and lists, what is not finite becomes text."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, complex):
        return [plain(value.real), plain(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
