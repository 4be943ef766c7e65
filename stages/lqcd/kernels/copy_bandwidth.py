"""The bandwidth of a copy within a machine's memory, which speeds are compared with: known once a machine.

`quarkline bench` and `quarkline certify` measure it, and keep it in the user's cache, `copy_bandwidth.json`.
A GPU of which nothing is known there is measured by the first process that asks, beside CuPy's pool, in some
milliseconds. A processor is not: the buffers would be counted as memory of the chunk that is computed.
"""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from stages.base.atomic import replacing
from stages.base.user_cache import cache_folder

BYTES = 1 << 28
"""Of each buffer on a GPU: several times its L2 cache."""

COPIES = 8


def copy_file() -> Path:
    """The file of the user's cache."""
    return cache_folder() / "copy_bandwidth.json"


def keep_copy_bandwidth(backend: str, gigabytes: float) -> None:
    """Write down what was measured here by all threads, in GB/s, read and written; not without a cache."""
    name, threads = _device(backend)
    entry = {"threads": threads, "gigabytes": gigabytes}
    known = {**_known(), f"{backend}: {name}": entry}
    file = copy_file()
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as written:
            written.write(f"{json.dumps(known, indent=1)}\n".encode())
    copy_bandwidth.cache_clear()


@cache
def copy_bandwidth(backend: str) -> float | None:
    """GB/s, read and written, of this process's device, or its threads' share; None if that is not known."""
    name, threads = _device(backend)
    try:
        entry = _known()[f"{backend}: {name}"]
        return float(entry["gigabytes"]) * min(1.0, threads / entry["threads"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        pass
    if backend != "cuda" or (measured := _measured()) is None:
        return None
    keep_copy_bandwidth(backend, measured)
    return measured


def _known() -> dict[str, Any]:
    try:
        return dict(json.loads(copy_file().read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _device(backend: str) -> tuple[str, int]:
    """Name of the device, and threads of this process's kernels on it, 1 for a GPU."""
    if backend != "cuda":
        import llvmlite.binding as llvm
        import numba

        return llvm.get_host_cpu_name(), numba.get_num_threads()
    import cupy

    return cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode(), 1


def _measured() -> float | None:
    """Of the current GPU; None where it has no room for the buffers."""
    import cupy

    try:
        source, target = (cupy.cuda.Memory(BYTES) for _ in range(2))  # of CUDA, not of the pool
    except (MemoryError, cupy.cuda.runtime.CUDARuntimeError):
        return None
    stream, seconds = cupy.cuda.get_current_stream(), []
    for _ in range(COPIES):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record(stream)
        cupy.cuda.runtime.memcpyAsync(target.ptr, source.ptr, BYTES, _ON_DEVICE, stream.ptr)
        stop.record(stream)
        stop.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(start, stop) / 1e3)
    return 2 * BYTES / min(seconds) / 1e9


_ON_DEVICE = 3
"""cudaMemcpyDeviceToDevice."""
