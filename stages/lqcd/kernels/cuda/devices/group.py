"""The devices that share a lattice: their streams, their memory, and the order of what they do.

One logical stream is a stream on each device; on the first it is CuPy's current one, where small arrays live
and CuPy's own calls run. Outside recorded steps all devices wait for the first before a launch that they
share, and it for them after: everything then is in one order, and memory that is given back is past its last
reader. In a step that works by our launches alone (`DeviceGroup.alone`) the devices wait for each other only
where a launch reads what others wrote: around stencils, and after sums over all of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import permutations
from math import prod
from typing import Any, TypeVar

import cupy
import numpy as np
from numpy.typing import DTypeLike

from stages.base import gpus
from stages.lqcd.kernels.cuda.devices.partition import (
    LibraryWork,
    PartialWork,
    Partition,
    Run,
    Work,
)
from stages.lqcd.kernels.cuda.devices.queue import DeviceQueue
from stages.lqcd.kernels.cuda.devices.spans import Span, SpanPool, check_granularity
from stages.lqcd.kernels.cuda.launch import Launch
from stages.lqcd.lattice.geometry import Lattice

T = TypeVar("T")

Malloc = Callable[[int], cupy.cuda.MemoryPointer]

Grids = Callable[[int], tuple[int, ...]]
"""The grid of a launch on the device at a place of the group."""

_group: DeviceGroup | None = None


class PerDevice(tuple[Any, ...]):
    """An argument of a launch that is another one on each device."""


def current_group() -> DeviceGroup | None:
    """The devices that share this process' lattice; None where it lies on one, or each works by itself."""
    return None if _group is None or _group.separate else _group


def works_separately() -> bool:
    """True while this thread makes something on each device by itself (`DeviceGroup.on_each`)."""
    return _group is not None and _group.separate


@contextmanager
def on_one_device() -> Iterator[None]:
    """While the block runs, new arrays lie on the first device and all work is done there."""
    if _group is None:
        yield
    else:
        with _group.separately(0):
            yield


def on_each_device(make: Callable[[int], tuple[Any, ...]]) -> tuple[Any, ...]:
    """Arguments of a launch that `make` gives on the current device, or on each of a group's.

    make: is told the place of the device in the group, 0 without one.
    """
    group = current_group()
    if group is None:
        return make(0 if _group is None else _group.part)
    return tuple(PerDevice(each) for each in zip(*group.on_each(make), strict=True))


def alone() -> AbstractContextManager[None]:
    """A block in which nothing is queued but our launches: see `DeviceGroup.alone`."""
    group = current_group()
    return nullcontext() if group is None else group.alone()


def grids_of(launch: Launch) -> Grids:
    """The grid in which a launch starts on the device at a place of the group.

    Ask before `on_each_device`: what that makes belongs to one device, and a launch there would be whole.
    """
    group = current_group()
    if group is None or launch.work is None:
        return lambda part: launch.grid
    shares = launch.work.shares(group.partition, launch.grid)
    return lambda part: shares[part].grid


@contextmanager
def spread_over(lattice: Lattice, devices: tuple[int, ...]) -> Iterator[DeviceGroup | None]:
    """While the block runs, new fields lie on all of these devices, and kernels run on all.

    devices: numbers of CUDA devices; one alone changes nothing, and gives None. One that is named twice has
    two parts, as tests want it. Not for use by two threads. Raises InputError where t is too short for so
    many, or where they cannot read each other's memory.
    """
    group = group_of(lattice, devices)
    try:
        with cupy.cuda.Device(devices[0]), _current(group):
            yield group
    finally:
        if group is not None:
            group.pool.release()


@contextmanager
def spread_in_worker(extents: tuple[int, int, int, int] | None) -> Iterator[None]:
    """While the block runs, new fields lie on the devices that the environment gives this process.

    Memory stays mapped for the next block. extents: of the lattice; None: new fields lie on the first device.
    Raises InputError where there are fewer devices than it says, and as `spread_over`.
    """
    devices = gpus.visible_gpus()
    with _current(None if extents is None else group_of(Lattice(extents), devices)):
        yield


@contextmanager
def _current(group: DeviceGroup | None) -> Iterator[None]:
    """Let a group be the current one; None: new fields lie on the current device."""
    global _group
    before = _group
    if group is None:
        allocator: AbstractContextManager[Any] = (
            nullcontext() if before is None else cupy.cuda.using_allocator(before.plain)
        )
    else:
        allocator = cupy.cuda.using_allocator(group.malloc)
    with allocator:
        _group = group
        try:
            yield
        finally:
            _group = before


@cache
def group_of(lattice: Lattice, devices: tuple[int, ...]) -> DeviceGroup | None:
    """The group of these devices for a lattice, None for a single one; raises as `spread_over`."""
    partition = Partition(len(devices), lattice.extents[3])
    if partition.parts == 1:
        return None
    connect(devices)
    check_granularity(devices)
    return DeviceGroup(devices, partition, *_memory(devices))


@cache
def _memory(devices: tuple[int, ...]) -> tuple[SpanPool, Malloc]:
    """Spans of a process on these devices, for lattices of any cut, and the allocator of all else."""
    pool = SpanPool(devices)
    gpus.mapped.append(pool)
    return pool, cupy.cuda.get_allocator()


def connect(devices: tuple[int, ...]) -> None:
    """Let every device read and write the memory of the others; as `gpus.check_sharing` raises."""
    gpus.check_sharing(devices)
    runtime = cupy.cuda.runtime
    for device, other in permutations(set(devices), 2):
        with cupy.cuda.Device(device):
            try:
                runtime.deviceEnablePeerAccess(other)
            except runtime.CUDARuntimeError as error:
                if "PeerAccessAlreadyEnabled" not in str(error):
                    raise


@dataclass(eq=False)
class DeviceGroup:
    """Devices that share a lattice, cut as `partition` says."""

    ids: tuple[int, ...]
    partition: Partition
    pool: SpanPool
    plain: Malloc
    """CuPy's allocator for what lies on one device."""
    kernels: dict[Any, Any] = field(default_factory=dict, repr=False)
    """What is loaded for a launch on these devices (`stages.lqcd.kernels.cuda.compile`)."""
    workspaces: list[Any] = field(default_factory=list, repr=False)
    """Arrays that loaded kernels know by their addresses."""

    _each: _OnEach = field(default_factory=lambda: _OnEach(), repr=False)

    @cached_property
    def _queue(self) -> DeviceQueue:
        return DeviceQueue(self.ids, self.partition)

    def _taken(self, runs: tuple[Run, ...], begin: int) -> tuple[Span, cupy.cuda.MemoryPointer]:
        """A span that nobody uses, and where an array begins in it.

        In a recorded step devices may still be at work on what it was.
        """
        if self._queue.alone_now:
            raise RuntimeError("a recorded step makes an array over several GPUs: make it before the step")
        span, pointer = self.pool.take(runs)
        return span, pointer + begin

    def malloc(self, size: int) -> cupy.cuda.MemoryPointer:
        """Memory for an array of CuPy's, as its allocator: large ones are cut as if sites were their rows."""
        runs = () if self.separate else self._runs((size,), 1)
        return self.plain(size) if len(runs) < 2 else self._taken(runs, self.partition.begin((size,), 1))[1]

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> cupy.ndarray:
        """An array in the pages of all devices, or on the first if it is small; not filled."""
        dtype = np.dtype(dtype)
        runs = self._runs(shape, dtype.itemsize)
        if len(runs) < 2:
            return cupy.ndarray(shape, dtype, self.plain(dtype.itemsize * prod(shape)))
        return cupy.ndarray(shape, dtype, self._taken(runs, self.partition.begin(shape, dtype.itemsize))[1])

    def empty_on_first(self, shape: tuple[int, ...], dtype: DTypeLike) -> cupy.ndarray:
        """An array on the first device, not filled, as of a grid that is too small to be shared."""
        dtype = np.dtype(dtype)
        return self.kept_on_first(cupy.ndarray(shape, dtype, self.plain(dtype.itemsize * prod(shape))))

    def kept_on_first(self, array: cupy.ndarray) -> cupy.ndarray:
        """An array of the first device as one that lies there by intention."""
        memory = cupy.cuda.UnownedMemory(array.data.ptr, array.nbytes, OnFirst(array), self.ids[0])
        return cupy.ndarray(array.shape, array.dtype, cupy.cuda.MemoryPointer(memory, 0), array.strides)

    def zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> cupy.ndarray:
        """An array of zeros; each device clears its own pages."""
        dtype = np.dtype(dtype)
        runs = self._runs(shape, dtype.itemsize)
        if len(runs) < 2:
            array = self.empty(shape, dtype)
            array.fill(0)
            return array
        span, pointer = self._taken(runs, self.partition.begin(shape, dtype.itemsize))

        def clear(part: int, stream: Any) -> None:
            for owner, address, length in span.segments():
                if owner == part:
                    cupy.cuda.runtime.memsetAsync(address, 0, length, stream.ptr)

        self.start(PartialWork(), clear)
        return cupy.ndarray(shape, dtype, pointer)

    @contextmanager
    def memory_apart(self, plain: Malloc) -> Iterator[SpanPool]:
        """While the block runs arrays take memory that nobody else is given: of `plain`, and of this pool."""
        before = self.pool, self.plain
        self.pool, self.plain = self.pool.apart(), plain
        try:
            yield self.pool
        finally:
            self.pool, self.plain = before

    def meet(self) -> None:
        """Every device waits for what is queued on all."""
        self.start(LibraryWork(), lambda part, stream: None)

    def _runs(self, shape: tuple[int, ...], itemsize: int) -> tuple[Run, ...]:
        return self.partition.runs(shape, itemsize) if prod(shape) else ()

    @property
    def separate(self) -> bool:
        """True while this thread makes something on each device by itself (`on_each`, `together`)."""
        return self._each.part is not None

    @property
    def part(self) -> int:
        """The place of the device on which this thread does so; 0 otherwise."""
        return self._each.part or 0

    def separately(self, part: int) -> AbstractContextManager[None]:
        """A block in which this thread works on one device, which is the current one, by itself."""
        return self._each.on(part)

    def on_each(self, make: Callable[[int], T]) -> list[T]:
        """Results of `make` while each device and its stream are the current ones; it is told their place.

        CuPy then fills an array, and gives its memory to the next, in the order of the launches there. Arrays
        lie on that device whole, and launches start on it alone.
        """
        made = []
        for part, stream in enumerate(self._queue.streams()):
            with cupy.cuda.Device(self.ids[part]), stream, self.separately(part):
                made.append(make(part))
        return made

    def together(self, make: Callable[[int], T]) -> list[T]:
        """`on_each` of work on shared arrays: after all that has been queued, ahead of all that comes."""
        made: list[T] = []

        def on_device(part: int, stream: Any) -> None:
            with stream, self.separately(part):
                made.append(make(part))

        self.start(LibraryWork(), on_device)
        return made

    def in_turns(self, make: Callable[[int], Iterator[None]]) -> None:
        """`together` of work that yields between its calls, where the next device goes on with its own.

        All are busy soon, and not when the calls of the others before them have been made.
        """
        streams, under_way = self._queue.streams(), dict(enumerate(map(make, range(len(self.ids)))))

        def go_on(part: int, stream: Any) -> None:
            with cupy.cuda.Device(self.ids[part]), stream, self.separately(part):
                if next(under_way[part], self) is self:
                    del under_way[part]

        def on_device(part: int, stream: Any) -> None:
            go_on(part, stream)
            while part == len(self.ids) - 1 and under_way:
                for each in list(under_way):
                    go_on(each, streams[each])

        self.start(LibraryWork(), on_device)

    def start(self, work: Work | None, start: Callable[[int, Any], None]) -> None:
        """Queue a launch on all devices, or without work to share on the first one.

        start: given the device's place and stream; it is the current device then.
        """
        self._queue.start(work, start)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While the block runs nothing is queued but by `start`: devices wait only where they must."""
        with self._queue.alone():
            yield


@dataclass(frozen=True, eq=False)
class OnFirst:
    """Owner of memory that lies on the first device by intention: what is made like it lies there, too."""

    array: cupy.ndarray


class _OnEach(threading.local):
    """The place of the device on which this thread makes something by itself."""

    part: int | None = None

    @contextmanager
    def on(self, part: int) -> Iterator[None]:
        before, self.part = self.part, part
        try:
            yield
        finally:
            self.part = before
