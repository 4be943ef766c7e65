"""Large arrays between host and device, from page-locked memory or in pieces through it.

The copy engine reads and writes page-locked memory alone; other memory the driver copies piece by piece on
one thread. Here several threads do that, each with two buffers: one is filled while the other travels. What
is sent many times is better page-locked itself: from there it travels at the 55 GB/s of the bus, through
buffers at 30 to 44 (H200). Of what several GPUs share, each copies what lies on it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any, Protocol
from weakref import finalize

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.lqcd.kernels.dispatch import Array, array_module, implementation_of
from stages.lqcd.kernels.fields import contiguous, empty_field
from stages.lqcd.lattice.threads import in_threads, most_threads

PIECE = 8 << 20
"""Bytes of a buffer: long beside what starting a copy costs, short beside a gauge field."""

THREADS = 8
"""At most: one thread copies some 10 GB/s, the bus takes 55."""

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
"""As cudaMemcpyAsync numbers them."""

PAGE_LOCKED = 1
"""cudaMemoryTypeHost."""

_busy = Lock()
"""The buffers serve one transfer at a time."""


class Stored(Protocol):
    """An array, in memory or on disk, of which parts are read."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    def __getitem__(self, part: Any) -> Any: ...


def to_device(array: NDArray, out: Array | None = None) -> Array:
    """A copy on the current CUDA device, a C-contiguous CuPy array: `out`, of this shape and dtype, if given.

    It waits for the work of the current stream, which may still use `out`, and for the copy.
    """
    cupy = import_module("cupy")
    source = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    result: Any = empty_field(array.shape, array.dtype, cupy) if out is None else out
    if is_page_locked(source):
        cupy.cuda.get_current_stream().synchronize()  # kernels may still read or write its memory
        streams = []
        for device, run in _runs(result):
            with cupy.cuda.Device(device), cupy.cuda.Stream(non_blocking=True) as stream:
                ends = result.data.ptr + run.start, source.ctypes.data + run.start
                cupy.cuda.runtime.memcpyAsync(*ends, len(run), HOST_TO_DEVICE, stream.ptr)
                streams.append(stream)
        for stream in streams:
            stream.synchronize()
        return result

    def send(pieces: list[range], buffers: list[NDArray[np.uint8]], stream: Any) -> None:
        sent = [stream.record(), stream.record()]
        for turn, place in enumerate(pieces):
            piece = source[place.start : place.stop]
            sent[turn % 2].synchronize()
            buffers[turn % 2][: len(piece)] = piece
            ends = result.data.ptr + place.start, buffers[turn % 2].ctypes.data
            cupy.cuda.runtime.memcpyAsync(*ends, len(piece), HOST_TO_DEVICE, stream.ptr)
            sent[turn % 2] = stream.record()
        stream.synchronize()

    _by_threads(send, result)
    return result


def copy_to_host(array: Array) -> NDArray:
    """A field of a device in the host's memory, by several threads; a NumPy array is returned as it is."""
    if array_module(array) is np:
        return array
    cupy = import_module("cupy")
    source: Any = contiguous(array)
    result = np.empty(array.shape, array.dtype)
    target = result.reshape(-1).view(np.uint8)

    def fetch(pieces: list[range], buffers: list[NDArray[np.uint8]], stream: Any) -> None:
        arrivals = []
        for turn, place in enumerate([*pieces, None]):
            if place is not None:
                ends = buffers[turn % 2].ctypes.data, source.data.ptr + place.start
                cupy.cuda.runtime.memcpyAsync(*ends, len(place), DEVICE_TO_HOST, stream.ptr)
                arrivals.append(stream.record())
            if turn > 0:  # empty the buffer before while this one is filled
                arrivals[turn - 1].synchronize()
                before = pieces[turn - 1]
                target[before.start : before.stop] = buffers[(turn - 1) % 2][: len(before)]

    _by_threads(fetch, source)
    return result


def to_backend(array: Array, backend: str) -> Array:
    """The array as the backend's: as it is for 'cpu', a CuPy array on the current device for 'cuda'."""
    return to_device(array) if backend == "cuda" else array


def sent_like(field: NDArray, like: Array) -> Array:
    """A field of the host in the library of another: as it is, or a CuPy array on its GPUs."""
    return field if array_module(like) is np else to_device(field)


def page_locked(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray:
    """An array of the host, not filled, that the copy engine reads where it lies; takes 0.2 s for a GiB.

    Where the system does not allow so much, ordinary memory, which `to_device` sends through its buffers.
    """
    runtime, array = import_module("cupy").cuda.runtime, np.empty(shape, dtype)
    if array.nbytes:
        try:
            runtime.hostRegister(array.ctypes.data, array.nbytes, 0)
        except runtime.CUDARuntimeError:
            return array
        finalize(array, runtime.hostUnregister, array.ctypes.data).atexit = False
    return array


def is_page_locked(array: NDArray) -> bool:
    """True if the copy engine reads this memory where it lies."""
    runtime = import_module("cupy").cuda.runtime
    return bool(array.size) and runtime.pointerGetAttributes(array.ctypes.data).type == PAGE_LOCKED


def _by_threads(copy: Callable[[list[range], list[NDArray[np.uint8]], Any], None], array: Array) -> None:
    """Call copy(its pieces, two buffers, a stream) in every thread, on each device where an array lies."""
    cupy = import_module("cupy")
    pieces: dict[int, list[range]] = {}
    for device, run in _runs(array):
        parts = (run[first : first + PIECE] for first in range(0, len(run), PIECE))
        pieces.setdefault(device, []).extend(parts)
    threads = min(THREADS, most_threads(), sum(map(len, pieces.values())))

    def work(number: int) -> None:
        devices = list(pieces)
        for turn in range(len(devices)):  # threads begin with different ones
            device = devices[(number + turn) % len(devices)]
            with cupy.cuda.Device(device), cupy.cuda.Stream(non_blocking=True) as stream:
                copy(pieces[device][number::threads], _buffers(number), stream)

    cupy.cuda.get_current_stream().synchronize()  # of the array: kernels may still read or write its memory
    with _busy:
        in_threads(work, range(threads))


def _runs(array: Array) -> list[tuple[int, range]]:
    """Devices and the bytes of a CuPy array that lie there, in their order."""
    runs: list[tuple[int, range]] = implementation_of("fields.runs_of_bytes", "cuda")(array)
    return runs


@cache
def _buffers(thread: int) -> list[NDArray[np.uint8]]:
    """Two page-locked buffers, made once in a process."""
    allocate = import_module("cupy").cuda.alloc_pinned_memory
    return [np.frombuffer(allocate(PIECE), np.uint8, PIECE) for _ in range(2)]
