"""Work on the current stream, CUDA graphs of it, and reports through pinned memory that a kernel writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from weakref import finalize

import cupy
import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.cuda.compile import narrowing as narrowing
from stages.lqcd.kernels.cuda.compile import run, settle
from stages.lqcd.kernels.cuda.devices.group import DeviceGroup, alone, current_group
from stages.lqcd.kernels.cuda.devices.spans import SpanPool
from stages.lqcd.kernels.cuda.fields import assign, zero_field
from stages.lqcd.kernels.cuda.launch import Launch

LAG = 1

REPORT = Launch("report.cu", "report", (1,), 128)
"""Up to some hundred numbers to the host."""


class Reports:
    """Values that a loop sent from the device, received in their order and a few steps later."""

    def __init__(self, like: cupy.ndarray) -> None:
        self._ring = [_Slot(like.shape) for _ in range(LAG + 1)]
        self._sent = self._received = 0

    def send(self, values: cupy.ndarray) -> None:
        self._ring[self._sent % len(self._ring)].copy(values)
        self._sent += 1

    def receive(self) -> NDArray[np.float64]:
        slot = self._ring[self._received % len(self._ring)]
        self._received += 1
        slot.arrived.synchronize()
        return slot.values.copy()

    def discard(self) -> None:
        self._received = self._sent


class _Slot:
    """Pinned memory for one report, and the event after its copy."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        count = int(np.prod(shape))
        memory = cupy.cuda.alloc_pinned_memory(8 * count)
        self.values = np.frombuffer(memory, np.float64, count).reshape(shape)
        self.address = np.uintp(memory.ptr)
        self.arrived = cupy.cuda.Event(disable_timing=True)

    def copy(self, values: cupy.ndarray) -> None:
        run(REPORT, values, self.address, np.int32(values.size))
        self.arrived.record()


def reports(like: cupy.ndarray) -> Reports:
    return Reports(like)


def lag() -> int:
    return LAG


def surely(conditions: cupy.ndarray) -> bool:
    return False


def finish(like: cupy.ndarray) -> None:
    settle()
    cupy.cuda.get_current_stream().synchronize()


def repeated(step: Callable[[], None]) -> Callable[[], None]:
    return _Replayed(step)


def recorded(step: Callable[[], None]) -> Callable[[], None]:
    return _Replayed(step)


class _Replayed:
    """A step as a CUDA graph from its second call on.

    The first one runs it as it is, in the order of all other work, so that kernels are compiled and loaded,
    and whatever is made when it is first wanted, workspaces or packed links, is there.
    """

    def __init__(self, step: Callable[[], None]) -> None:
        self._step, self._warm = step, False
        self._graph: cupy.cuda.Graph | None = None

    def __call__(self) -> None:
        if not self._warm:
            self._step()
            self._warm = True
            return
        if self._graph is None:
            self._graph = _captured(self._step)
        self._graph.launch()


def _captured(step: Callable[[], None]) -> cupy.cuda.Graph:
    """`step` as a graph; capturing runs nothing, so that it needs no order with other streams.

    Where devices share the lattice, one graph holds the launches on all.
    """
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        with alone():
            step()
        return stream.end_capture()


def replayed(function: Callable[[cupy.ndarray], cupy.ndarray]) -> Callable[[cupy.ndarray], cupy.ndarray]:
    return _ReplayedFunction(function)


class _ReplayedFunction:
    """A graph for each shape of argument, from a pool of memory that belongs to it.

    The first call with a shape runs the function as it is, as `_Replayed` does. Graphs of two shapes are
    kept, that of the first and that of the latest: they hold what the function works in.
    """

    def __init__(self, function: Callable[[cupy.ndarray], cupy.ndarray]) -> None:
        self._function = function
        self._graphs: dict[tuple[object, ...], _FunctionGraph | None] = {}

    def __call__(self, x: cupy.ndarray) -> cupy.ndarray:
        kind = (x.shape, x.dtype, x.device.id, current_group())
        if kind not in self._graphs:
            self._graphs[kind] = None
            return self._function(x)
        graph = self._graphs[kind]
        if graph is None:
            for other in list(self._graphs)[1:]:
                self._graphs[other] = None
            graph = self._graphs[kind] = _FunctionGraph(self._function, x)
        return graph(x)


class _FunctionGraph:
    """A function of one array as a graph, with the memory that it works in.

    A pool keeps free memory by stream, so that one run on the capturing stream leaves all that the capture
    then takes; nobody else is given memory of this pool, nor of these spans where devices share the arrays.
    There one graph holds the launches on all, in the order that they have outside of graphs. The parts of a
    pool's block refer to each other in circles: left to itself its memory is free when Python next looks for
    those, which may be never.
    """

    scratch = True

    def __init__(self, function: Callable[[cupy.ndarray], cupy.ndarray], like: cupy.ndarray) -> None:
        pool, arrays, group = cupy.cuda.MemoryPool(), {}, current_group()
        devices = {like.device.id} if group is None else set(group.ids)
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.get_current_stream().synchronize()  # workspaces of kernels are shared between streams
        if group is not None:
            group.pool.release()
        _free_blocks(cupy.get_default_memory_pool(), devices)  # what it keeps for later, this pool lacks
        with ExitStack() as memory:
            spans = None if group is None else memory.enter_context(group.memory_apart(pool.malloc))
            memory.enter_context(cupy.cuda.using_allocator(pool.malloc if group is None else group.malloc))
            memory.enter_context(stream)
            arrays["argument"] = zero_field(like.shape, like.dtype)
            function(arrays["argument"])
            stream.synchronize()
            stream.begin_capture()
            with _met(group):
                arrays["result"] = function(arrays["argument"])
            self._graph = stream.end_capture()
        self._arrays = arrays
        finalize(self, _free, pool, spans, arrays, devices).atexit = False

    def __call__(self, x: cupy.ndarray) -> cupy.ndarray:
        assign(self._arrays["argument"], x)
        self._graph.launch()
        return self._arrays["result"]


@contextmanager
def _met(group: DeviceGroup | None) -> Iterator[None]:
    """A block of a capture in which the streams of all devices are captured, from its begin to its end."""
    if group is not None:
        group.meet()
    yield
    if group is not None:
        group.meet()


def _free(
    pool: cupy.cuda.MemoryPool, spans: SpanPool | None, arrays: dict[str, cupy.ndarray], devices: set[int]
) -> None:
    """Give the memory of a graph that is gone back to the devices."""
    arrays.clear()
    if spans is not None:
        spans.release()
    _free_blocks(pool, devices)


def _free_blocks(pool: cupy.cuda.MemoryPool, devices: set[int]) -> None:
    """Give what a pool keeps for later back to these devices."""
    for device in devices:
        with cupy.cuda.Device(device):
            pool.free_all_blocks()
