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

from pipeline.store.record import Facts
from stages.base.gpus import gpus_per_worker

ANSWER = 30.0
"""Seconds that git gets to answer."""


@cache
def code() -> dict[str, str]:
    """Versions of this package (with its commit, in a checkout), Python and NumPy."""
    try:
        package = version("quarkline")
    except PackageNotFoundError:
        package = "unknown"
    return {
        "quarkline": package,
        "commit": commit_of(Path(__file__).resolve()),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def commit_of(file: Path) -> str:
    """Commit of this module's file, with `-dirty` where its checkout was edited.

    '' unless the file is tracked, and its package stands at the top of the repository: one that is installed
    or copied inside somebody else's repository has no commit. No variable GIT_* counts.
    """
    root = file.parents[__name__.count(".")]
    if (top := _git(root, "rev-parse", "--show-toplevel")) is None or Path(top) != root:
        return ""
    if _git(root, "ls-files", "--error-unmatch", str(file.relative_to(root))) is None:
        return ""
    edited = _git(root, "status", "--porcelain", "--untracked-files=no")
    return (_git(root, "describe", "--always") or "") + ("-dirty" if edited else "")


def _git(folder: Path, *words: str) -> str | None:
    """Answer of git about the repository of a folder; None where there is none, or no git.

    git only reads: it writes no index, whose lock a killed process would leave behind, and runs no program.
    """
    command = ["git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-C", str(folder), *words]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    options: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "timeout": ANSWER}
    try:
        done = subprocess.run(command, env={**outside, "GIT_OPTIONAL_LOCKS": "0"}, **options)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def code_text(code: Facts) -> str:
    """Version and commit of the code of a record; where that has no commit, a digest of its sources."""
    sources = f"sources {code['sources'][:8]}" if code.get("sources") else ""
    which = code.get("commit") or sources
    return f"{code.get('quarkline', '?')} ({which})" if which else str(code.get("quarkline", "?"))


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
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def as_json(value: Any) -> Any:
    """Statistics as JSON: NumPy and CuPy values become numbers and lists, what is not finite becomes text."""
    if isinstance(value, dict):
        return {str(name): as_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    if hasattr(value, "tolist"):
        return as_json(value.tolist())
    if isinstance(value, complex):
        return [as_json(value.real), as_json(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
