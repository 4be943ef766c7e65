"""Run-time compilation of the package's `.cu` files through NVRTC, on a device or without one.

Kernels are C++17 templates; an instance such as ``gram_partials<float, 8, 8, ...>`` is compiled on first use
and kept per device. CuPy keeps the binaries on disk, keyed by source text, options and instance. What a solve
may need later, kernels for a narrower block, is compiled in other threads meanwhile (`narrowing`).
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from math import prod
from typing import Any

import cupy
import numpy as np
from cupy.cuda import compiler, driver, nvrtc
from cupy.cuda._compiler_cache import DiskKernelCacheBackend

from stages.base.compilation import getting, got
from stages.base.errors import InputError
from stages.lqcd.kernels.cuda.devices.group import DeviceGroup, PerDevice, current_group
from stages.lqcd.kernels.cuda.devices.partition import OwnWork, PartialWork, RowWork
from stages.lqcd.kernels.cuda.launch import Launch
from stages.lqcd.kernels.dispatch import is_contiguous

OPTIONS = ("-std=c++17", "-diag-error=61")
"""61: a constant that overflows, as a stride does on a large lattice, is an error and not a warning."""

SHARED = ("-DSPREAD",)
"""For kernels that several devices share: each then works on what falls to it (share.cuh)."""

DEFAULT_SHARED_BYTES = 48 * 1024

SHARE = "device_share"
"""Constant of a module that tells a device its share: share.cuh."""

WIDEST_SUM = 16
"""Numbers that a thread holds at most when the sums of devices are added."""

_widths: tuple[int, ...] = ()
_ahead: dict[tuple[Launch, int], Future[Any]] = {}
"""Compilations in other threads, by launch and device, until the kernel starts for the first time."""

_INCLUDE = re.compile(r'#include "(\w+\.cuh)"')


class _TimedCache(DiskKernelCacheBackend):
    """CuPy's binaries on disk. What it compiles or reads for itself is waited for like our own kernels."""

    def __init__(self) -> None:
        super().__init__()
        self._missed = threading.local()

    def load(self, name: str) -> bytes | None:
        began = time.perf_counter()
        payload: bytes | None = super().load(name)
        if payload is None:  # it is compiled now, and saved
            self._missed.at = began
        else:
            got(began, compiled=False)
        return payload

    def save(self, name: str, cubin: bytes, source: str) -> None:
        super().save(name, cubin, source)
        got(self._missed.at, compiled=True)


compiler._set_kernel_cache_backend(_TimedCache())


def run(launch: Launch, *arguments: Any) -> None:
    """Start a kernel on the current stream; arguments are CuPy arrays and NumPy scalars of its types.

    Raises InputError for an array that does not start on a 16-byte boundary, which vector loads need.
    """
    for argument in arguments:
        if not isinstance(argument, cupy.ndarray):
            continue
        if not is_contiguous(argument):
            raise InputError(
                f"{launch.file} needs C-contiguous arrays, got a view of shape {argument.shape} with strides "
                f"{argument.strides}: pass a copy"
            )
        if argument.data.ptr % 16:
            raise InputError(
                f"{launch.file} needs arrays that start on a 16-byte boundary, got a view of shape "
                f"{argument.shape} that does not: pass a copy"
            )
    group = current_group()
    if group is not None:
        _run_on(group, launch, arguments)
        return
    function = _started(launch, cupy.cuda.get_device_id(), _widths)
    function(launch.grid, (launch.threads,), arguments, shared_mem=launch.shared_bytes)


def _run_on(group: DeviceGroup, launch: Launch, arguments: tuple[Any, ...]) -> None:
    """Start a kernel on every device of a group for its own share, or whole on the first."""
    functions, grids = _shared_kernel(group, launch)

    def start(part: int, stream: Any) -> None:
        if prod(grids[part]):
            own = tuple(each[part] if isinstance(each, PerDevice) else each for each in arguments)
            functions[part](grids[part], (launch.threads,), own, launch.shared_bytes, stream)

    group.start(launch.work, start)


Shared = tuple[Sequence[Any], list[tuple[int, ...]]]
"""The driver's functions and the grids of a kernel on each device of a group."""


def _shared_kernel(group: DeviceGroup, launch: Launch) -> Shared:
    kernel = group.kernels.get(launch)
    if kernel is None:
        kernel = group.kernels[launch] = _loaded(group, launch)
    return kernel


def _loaded(group: DeviceGroup, launch: Launch) -> Shared:
    """Load a kernel on the devices that share it, and tell each its share, in a module of its own."""
    if launch.work is None:
        return [_started(launch, group.ids[0], _widths)], [launch.grid]
    shares = launch.work.shares(group.partition, launch.grid)
    sums, numbers = _sums_over_devices(launch)
    totals, arrived = cupy.empty(len(shares) * sums * numbers), cupy.zeros(sums, np.uint32)
    group.workspaces.append((totals, arrived))

    def load(part: int) -> Any:
        module = compiler._compile_module_with_cache(
            source(launch.file), (*OPTIONS, *SHARED), name_expressions=(launch.instance,)
        )
        if not isinstance(launch.work, OwnWork):  # that is whole on each, and need not know of shares
            numbers = shares[part].numbers(part, len(shares), totals.data.ptr, arrived.data.ptr)
            memory = cupy.cuda.UnownedMemory(module.get_global_var(SHARE), 0, module)
            cupy.cuda.MemoryPointer(memory, 0).copy_from_host(numbers.ctypes.data, numbers.nbytes)
        function = module.get_function(module.mapping[launch.instance])
        if launch.shared_bytes > DEFAULT_SHARED_BYTES:
            limit = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(function.ptr, limit, launch.shared_bytes)
        return function

    with getting(for_lattice=launch.for_lattice):
        functions = group.on_each(load)
    cupy.cuda.get_current_stream().synchronize()  # the counters are zero for every stream
    return functions, [share.grid for share in shares]


def _sums_over_devices(launch: Launch) -> tuple[int, int]:
    """Sums of a launch that go on over devices, and doubles in each, at most."""
    if isinstance(launch.work, PartialWork):
        return launch.work.sums, launch.work.numbers
    several = isinstance(launch.work, RowWork) and launch.work.sums
    return prod(launch.grid[1:]) if several else 1, WIDEST_SUM * launch.threads


@contextmanager
def narrowing(widths: Sequence[int]) -> Iterator[None]:
    """While the block runs, kernels that start are compiled ahead for all narrower ones of these widths.

    That takes place in other threads; compilers leave the interpreter to the one that solves. What has not
    begun when the outermost block ends is left out. Not for use by two threads.
    """
    global _widths
    before, _widths = _widths, tuple(widths)
    try:
        yield
    finally:
        _widths = before
        if not before:
            for key in [key for key, future in _ahead.items() if future.cancel() or future.done()]:
                del _ahead[key]


def settle() -> None:
    """Return when nothing is being compiled ahead."""
    wait(list(_ahead.values()))


@cache
def _started(launch: Launch, device: int, widths: tuple[int, ...]) -> Any:
    """The driver's function of a kernel that starts for the first time in a block of `narrowing`."""
    with getting(for_lattice=launch.for_lattice) as kernel:
        if widths and launch.narrower is not None:
            for other in reversed(launch.narrower(widths)):  # the next one first
                if (other, device) not in _ahead:
                    _ahead[other, device] = _threads().submit(_compiled, other, device)
        ahead = _ahead.pop((launch, device), None)
        if ahead is not None and not ahead.cancel() and not ahead.exception():
            kernel.compiled |= ahead.result()
        return _function(launch, device)


@cache
def _threads() -> ThreadPoolExecutor:
    """Threads for NVRTC, which fails where two use it for the first time at once: this one does so alone."""
    empty = nvrtc.createProgram("", "empty.cu", (), ())
    nvrtc.compileProgram(empty, ())
    nvrtc.destroyProgram(empty)
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)), "compilation")


def _compiled(launch: Launch, device: int) -> bool:
    """Whether the kernel was compiled, and not read."""
    group = current_group()
    with cupy.cuda.Device(device), getting() as kernel:
        if group is None:
            _function(launch, device)
        else:
            _shared_kernel(group, launch)
    return kernel.compiled


@cache
def _function(launch: Launch, device: int) -> Any:
    """The driver's function itself: CuPy's RawKernel would look it up again at every call."""
    module = cupy.RawModule(code=source(launch.file), options=OPTIONS, name_expressions=(launch.instance,))
    kernel = module.get_function(launch.instance)
    if launch.shared_bytes > DEFAULT_SHARED_BYTES:
        kernel.max_dynamic_shared_size_bytes = launch.shared_bytes
    return kernel.kernel


@cache
def source(file: str) -> str:
    """Text of a `.cu` file of this package with its headers in place; ``#line`` keeps error messages true."""
    return "\n".join(_expanded(file, set()))


def _expanded(file: str, included: set[str]) -> list[str]:
    lines = [f'#line 1 "{file}"']
    for number, line in enumerate((files(__package__) / file).read_text().splitlines(), start=1):
        if match := _INCLUDE.match(line):
            header = match[1]
            if header not in included:
                included.add(header)
                lines += _expanded(header, included)
            lines.append(f'#line {number + 1} "{file}"')
        else:
            lines.append(line)
    return lines
