"""Compilation of the CPU kernels: a Numba function per (kernel, right-hand sides, dtype), cached on disk.

A kernel is compiled as a plain loop over its items, in a third of the time that Numba takes for a parallel
one. The threads, each with a share of the items, are those of one parallel loop for all kernels.

Numba's cache file is chosen by the function's name; its index is not locked, and it does not notice a
change in a module that the function uses. So every specialisation gets a file of its own, named for the
kernel, its constants and a digest of the sources of this package and of the contracts, and of the processor.
Two processes that compile at the same time then write the same thing or different files, and an upgrade or
another node never runs stale code. On one machine they do not: workers that start together wait for the first
of them and read what it has written.

Numba takes its thread pool from TBB or OpenMP where it finds one; its own last resort, `workqueue`, aborts
when two Python threads call parallel kernels at once. Call them from one thread of a process at a time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import cache, partial
from pathlib import Path
from tempfile import gettempdir
from typing import TypeVar
from zlib import crc32

import llvmlite.binding as llvm
import numpy as np
from numba import get_num_threads, njit, prange, types
from numba.core.dispatcher import Dispatcher
from numba.core.typing.templates import Signature
from numba.np.numpy_support import from_dtype
from numpy.typing import DTypeLike

from stages.base.compilation import getting, tell_of_wait
from stages.lqcd.kernels.cpu.calling import CalledByAddress, WithoutWrappers, address_of, call, lay_out
from stages.lqcd.kernels.cpu.recording import Argument, Call, done

LOCKS = 64
"""Files that keep order among processes; a kernel has the one that its name hashes to."""

R = TypeVar("R")


def _digest() -> str:
    digest = hashlib.sha256()
    own = Path(__file__).parent
    for source in sorted([*own.glob("*.py"), *own.parent.glob("*.py")]):
        digest.update(source.read_bytes())
    digest.update(llvm.get_host_cpu_name().encode())
    digest.update(llvm.get_host_cpu_features().flatten().encode())
    return digest.hexdigest()[:12]


DIGEST = _digest()
"""Of sources and processor, taken at import: where files are exchanged beneath a process, what it compiles
later from the old ones must not have the name of the new ones.
"""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled function and what calls it; the code lives as long as `share`.

    items: how many there are for its arguments, which threads share; None for the little work between two
    kernels, done by the thread that calls.
    """

    share: Dispatcher
    address: int
    items: Callable[..., int] | None
    launch: Callable[..., int]

    def __call__(self, *arguments: Argument) -> None:
        items, threads = (1, 1) if self.items is None else (self.items(*arguments), get_num_threads())
        done(Call(self.launch, self.address, items, threads, arguments))


def compiled(
    function: Callable[..., None], name: str, signature: Signature, items: Callable[..., int]
) -> Kernel:
    """`function(low, high, *arguments)` for all items, in parallel, compiled under a unique `name`.

    The result takes `arguments` alone, of the types of `signature`, and `items` says of them how many there
    are; no item may depend on another.

    IEEE arithmetic as written. The compiler must not fuse products and sums: it would choose differently for
    code that it has just compiled and for the same code read back from the cache, and results would depend
    on who compiled. Kernels that live on fused products ask for each (`vector_ir`).
    """
    share = _cached(
        function, name, types.void(types.uintp, types.uintp, *signature.args), pipeline_class=CalledByAddress
    )
    return Kernel(share, address_of(share), items, _launcher(types.Tuple(signature.args), shared=True))


def compiled_serial(function: Callable[..., None], name: str, signature: Signature) -> Kernel:
    """Compile a `function(*arguments)` under a unique `name`."""
    result = _cached(function, name, types.void(*signature.args), pipeline_class=CalledByAddress)
    return Kernel(result, address_of(result), None, _launcher(types.Tuple(signature.args), shared=False))


def compiled_control(function: Callable[..., R], name: str, signature: Signature) -> Callable[..., R]:
    """Compile a `function(*arguments)` that calls others and is never part of a step."""
    return _cached(function, name, signature)


def _cached(
    function: Callable[..., object], name: str, signature: Signature, **options: object
) -> Dispatcher:
    function.__name__ = function.__qualname__ = f"{name}_{DIGEST}"
    with getting() as kernel, _turn(function.__name__):
        result = njit(signature, cache=True, error_model="numpy", **options)(function)
        kernel.compiled |= bool(result.stats.cache_misses)
    return result


inlined = njit(error_model="numpy", pipeline_class=WithoutWrappers)
"""Decorates what kernels call and becomes a part of them. Python must not call it: it has no wrapper."""


@cache
def _launcher(arguments: types.BaseTuple, shared: bool) -> Callable[..., int]:
    """Calls the compiled function at an address with arguments of these types.

    shared: with (low, high, *arguments) from so many threads. Numba takes as long for a parallel loop as for
    a kernel. So there is one, for arguments of any types, and what is compiled for theirs only lays them
    where the threads read them. Given a `room` of `ROOM` bytes, it lays them there, and calls nothing. The
    result is the address of what takes them from there.
    """
    bounds = int(shared)

    def launch(loop: int, address: int, items: int, threads: int, room: int, arguments: tuple) -> int:
        return lay_out(loop, address, items, threads, room, arguments, bounds)

    digest = crc32(f"{arguments}{shared}".encode())
    signature = types.intp(*5 * [types.intp], arguments)
    return partial(_cached(launch, f"launch_{digest:08x}", signature), thread_loop())


@cache
def thread_loop() -> int:
    """Address of a call of the function at an address with (low, high, place) from so many threads.

    It takes the addresses of the function and of the place of its arguments, items and threads.
    """

    def loop(address: int, place: int, items: int, threads: int) -> None:
        if threads == 1:
            call(address, 0, items, place)
            return
        for thread in prange(threads):
            call(address, items * thread // threads, items * (thread + 1) // threads, place)

    return address_of(_cached(loop, "thread_loop", types.void(*4 * [types.intp]), parallel=True))


@contextmanager
def _turn(name: str) -> Iterator[None]:
    """One process of this machine and user at a time; without order where there is no folder for a lock."""
    folder = Path(gettempdir()) / f"quarkline-{os.getuid()}"
    try:
        folder.mkdir(exist_ok=True)
        lock = open(folder / f"kernels-{crc32(name.encode()) % LOCKS}", "ab")  # noqa: SIM115 (closed below)
    except OSError:
        yield
        return
    with lock:
        try:
            flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            tell_of_wait()
            flock(lock, LOCK_EX)
        yield


def array_type(dtype: DTypeLike, dimensions: int, *, writable: bool = False) -> types.Array:
    """Numba's type of a C-contiguous array; a read-only type takes writable arrays too."""
    return types.Array(from_dtype(np.dtype(dtype)), dimensions, "C", readonly=not writable)
