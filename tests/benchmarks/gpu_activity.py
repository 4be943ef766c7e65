"""Activity of a GPU by CUPTI's records: every kernel, copy and memset of this process, with its times.

CUPTI (a part of CUDA) writes start and end of each into buffers that it asks for; here they are only kept,
and read at the end. Kernels of CUDA graphs are recorded one by one.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MEMCPY, MEMSET, CONCURRENT_KERNEL = 1, 2, 10
KINDS = {MEMCPY: "memcpy", MEMSET: "memset"}
BUFFER = 4 << 20
"""Bytes. CUPTI asks for one per thread: 64 MB of zeros would delay each transfer by several threads."""
SPAN, KERNEL_NAME = 16, 104
"""Where a record holds its start and end, and a kernel's its name; the same since CUDA 9."""


class Activity(NamedTuple):
    """Times in seconds since 1970, float64, in order of start; `names[number[i]]` is what it was."""

    start: np.ndarray
    end: np.ndarray
    number: np.ndarray
    names: list[str]


class Recorder:
    """Records from now until `finish`; one per process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(_cupti()))
        self._buffers: list[np.ndarray] = []
        self._filled: list[tuple[int, int]] = []
        pointer = ctypes.POINTER
        request = ctypes.CFUNCTYPE(
            None, pointer(ctypes.c_void_p), pointer(ctypes.c_size_t), pointer(ctypes.c_size_t)
        )
        complete = ctypes.CFUNCTYPE(
            None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
        )
        self._callbacks = request(self._give), complete(self._take)
        self._call("cuptiActivityRegisterCallbacks", *self._callbacks)
        for kind in (CONCURRENT_KERNEL, *KINDS):
            self._call("cuptiActivityEnable", ctypes.c_uint(kind))
        now = ctypes.c_uint64()
        self._call("cuptiGetTimestamp", ctypes.byref(now))
        self._origin = time.time() - now.value * 1e-9

    def finish(self) -> Activity:
        """Stop, and give all that was recorded."""
        self._call("cuptiActivityFlushAll", ctypes.c_uint(1))
        names: dict[str, int] = {}
        rows = [
            (begin, end, names.setdefault(name, len(names)))
            for begin, end, name in chain.from_iterable(map(self._read, self._filled))
        ]
        table = np.array(sorted(rows), np.int64).reshape(-1, 3)
        start, end = (table[:, column] * 1e-9 + self._origin for column in (0, 1))
        return Activity(start, end, table[:, 2], list(names))

    def _call(self, function: str, *arguments: object) -> None:
        if status := getattr(self._library, function)(*arguments):
            raise RuntimeError(f"{function}: CUPTI error {status}")

    def _give(self, buffer: Any, size: Any, records: Any) -> None:
        space = np.empty(BUFFER, np.uint8)
        self._buffers.append(space)
        buffer[0], size[0], records[0] = space.ctypes.data, BUFFER, 0

    def _take(self, context: Any, stream: Any, buffer: Any, size: Any, valid: Any) -> None:
        self._filled.append((buffer, valid))

    def _read(self, filled: tuple[int, int]) -> Iterator[tuple[int, int, str]]:
        buffer, valid = filled
        record, known = ctypes.c_void_p(), dict[int, str]()
        while not self._library.cuptiActivityGetNextRecord(
            ctypes.c_void_p(buffer), ctypes.c_size_t(valid), ctypes.byref(record)
        ):
            head = ctypes.string_at(record.value or 0, KERNEL_NAME + 8)
            kind, (begin, end) = struct.unpack_from("I", head)[0], struct.unpack_from("QQ", head, SPAN)
            if kind == CONCURRENT_KERNEL:
                place = struct.unpack_from("Q", head, KERNEL_NAME)[0]
                if place not in known:
                    known[place] = ctypes.string_at(place).decode()
                yield begin, end, known[place]
            elif kind in KINDS:
                yield begin, end, KINDS[kind]


def _cupti() -> Path:
    """The library: from NVIDIA's Python package, or from the toolkit."""
    packages = [Path(folder, "nvidia") for folder in sys.path]
    toolkits = sorted(Path("/usr/local").glob("cuda*"))
    for folder in (*packages, *toolkits):
        if libraries := sorted(folder.rglob("libcupti.so.1[23]*")):
            return libraries[0]
    raise FileNotFoundError("no libcupti.so: pip install nvidia-cuda-cupti")
