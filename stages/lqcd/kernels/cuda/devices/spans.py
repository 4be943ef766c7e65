"""Memory of spread arrays: ranges of addresses whose pages lie on several devices, pooled by cut and size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import finalize

import cupy

from stages.base import gpus
from stages.base.errors import InputError
from stages.lqcd.kernels.cuda.devices.partition import PAGE, Run


@dataclass(frozen=True)
class Span:
    """A range of addresses, the runs of pages that lie on the devices, and what the driver calls them."""

    address: int
    runs: tuple[Run, ...]
    handles: tuple[Any, ...]

    @property
    def size(self) -> int:
        return PAGE * sum(pages for _, pages in self.runs)

    def segments(self) -> list[tuple[int, int, int]]:
        """Part, address and bytes of each run."""
        segments, address = [], self.address
        for part, pages in self.runs:
            segments.append((part, address, pages * PAGE))
            address += pages * PAGE
        return segments


@dataclass(eq=False)
class SpanPool:
    """Spans on some devices. One that nobody uses waits for the next array of its cut, mapped.

    An array gives its span back when it is gone: what takes it next comes after all that was queued, as the
    devices meet after every launch outside recorded steps (`DeviceGroup`), and in these nothing is allocated.
    """

    devices: tuple[int, ...]
    _free: dict[tuple[Run, ...], list[Span]] = field(default_factory=lambda: defaultdict(list))
    _bytes: list[int] = field(default_factory=list)
    _used: list[int] = field(default_factory=list)
    _main: SpanPool | None = None

    def __post_init__(self) -> None:
        self._bytes = self._bytes or [0] * len(self.devices)
        self._used = self._used or [0] * len(self.devices)

    def apart(self) -> SpanPool:
        """A pool whose spans nobody else is given, for a graph: they count as used with this one's."""
        return SpanPool(self.devices, _bytes=self._bytes, _used=self._used, _main=self)

    def take(self, runs: tuple[Run, ...]) -> tuple[Span, cupy.cuda.MemoryPointer]:
        """A span with these runs, and CuPy's pointer to it, which keeps it from being given to others."""
        span = self._free[runs].pop() if self._free[runs] else self._mapped(runs)
        lease = _Lease(span)
        finalize(lease, self._give_back, span).atexit = False
        if self._main is None:
            _add(span, self._used)
        for told in gpus.listeners:
            told()
        memory = cupy.cuda.UnownedMemory(span.address, span.size, lease, self.devices[0])
        return span, cupy.cuda.MemoryPointer(memory, 0)

    def _mapped(self, runs: tuple[Run, ...]) -> Span:
        """A new span; where memory is short, in place of all that wait."""
        try:
            span = map_pages(runs, self.devices)
        except cupy.cuda.memory.OutOfMemoryError:
            for pool in filter(None, (self, self._main)):
                pool.release()
            for device in set(self.devices):
                with cupy.cuda.Device(device):
                    cupy.get_default_memory_pool().free_all_blocks()
            span = map_pages(runs, self.devices)
        _add(span, self._bytes)
        if self._main is not None:
            _add(span, self._used)
        return span

    def _give_back(self, span: Span) -> None:
        if self._main is None:
            _add(span, self._used, -1)
        self._free[span.runs].append(span)

    @property
    def bytes_of_parts(self) -> list[int]:
        """Bytes mapped on each device."""
        return list(self._bytes)

    @property
    def used_bytes_of_parts(self) -> list[int]:
        """Bytes on each device of spans that arrays use."""
        return list(self._used)

    @property
    def free_bytes_of_parts(self) -> list[int]:
        """Bytes mapped on each device of spans that nobody uses."""
        return [mapped - used for mapped, used in zip(self._bytes, self._used, strict=True)]

    def release(self) -> None:
        """Give the memory of all spans that nobody uses back to the devices, once the queued work is done."""
        for device in set(self.devices):
            with cupy.cuda.Device(device):
                cupy.cuda.runtime.deviceSynchronize()
        for free in self._free.values():
            while free:
                span = free.pop()
                _add(span, self._bytes, -1)
                if self._main is not None:
                    _add(span, self._used, -1)
                unmap(span)


def _add(span: Span, parts: list[int], sign: int = 1) -> None:
    """Add a span's bytes to those of each device."""
    for part, pages in span.runs:
        parts[part] += sign * pages * PAGE


class _Lease:
    """Gone when no array uses its span any more."""

    def __init__(self, span: Span) -> None:
        self.span = span


def span_of(array: cupy.ndarray) -> Span | None:
    """The span in which an array, or what it is a view of, lies; None where it lies on one device."""
    memory = array.data.mem
    lease = memory._owner if isinstance(memory, cupy.cuda.UnownedMemory) else None
    return lease.span if isinstance(lease, _Lease) else None


def map_pages(runs: Sequence[Run], devices: tuple[int, ...]) -> Span:
    """A new span that all of the devices read and write. Raises cupy's OutOfMemoryError where one is full."""
    from cuda.bindings import driver  # its own package, which one device does without

    kinds = driver.CUmemLocationType
    handles: list[Any] = []
    size = PAGE * sum(pages for _, pages in runs)
    try:
        for part, pages in runs:
            handles.append(answer(driver.cuMemCreate(pages * PAGE, _on(devices[part]), 0)))
    except MemoryError:
        for handle in handles:
            answer(driver.cuMemRelease(handle))
        raise cupy.cuda.memory.OutOfMemoryError(size, 0) from None
    address = int(answer(driver.cuMemAddressReserve(size, PAGE, 0, 0)))
    span = Span(address, tuple(runs), tuple(handles))
    for (_, start, length), handle in zip(span.segments(), handles, strict=True):
        answer(driver.cuMemMap(start, length, 0, handle, 0))
    access = []
    for device in set(devices):
        right = driver.CUmemAccessDesc()
        right.location.type = kinds.CU_MEM_LOCATION_TYPE_DEVICE
        right.location.id = device
        right.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        access.append(right)
    answer(driver.cuMemSetAccess(address, size, access, len(access)))
    return span


def unmap(span: Span) -> None:
    """Give a span's memory and addresses back."""
    from cuda.bindings import driver

    answer(driver.cuMemUnmap(span.address, span.size))
    answer(driver.cuMemAddressFree(span.address, span.size))
    for handle in span.handles:
        answer(driver.cuMemRelease(handle))


def check_granularity(devices: Sequence[int]) -> None:
    """Raise InputError unless `PAGE` is a whole number of the pages that each device can map."""
    from cuda.bindings import driver

    answer(driver.cuInit(0))
    minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    for device in set(devices):
        granularity = int(answer(driver.cuMemGetAllocationGranularity(_on(device), minimum)))
        if PAGE % granularity:
            raise InputError(
                f"GPU {device} maps pages of {granularity} bytes, of which {PAGE} is no multiple: "
                "take one GPU per worker"
            )


def answer(result: tuple[Any, ...]) -> Any:
    """The value of a call of the driver; MemoryError where memory is short, RuntimeError otherwise."""
    status, *values = result
    if status.name == "CUDA_ERROR_OUT_OF_MEMORY":
        raise MemoryError
    if int(status):
        raise RuntimeError(f"the CUDA driver answered {status.name}")
    return values[0] if values else None


def _on(device: int) -> Any:
    from cuda.bindings import driver

    properties = driver.CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device
    return properties
