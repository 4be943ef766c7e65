"""Compilation of the CPU kernels: a Numba function per (kernel, right-hand sides, dtype), cached on disk.

A kernel is compiled as a plain loop over its items, in a third of the time that Numba takes for a parallel
one. The threads, each with a share of the items, are those of one parallel loop for all kernels.

Numba's cache file is chosen by the function's name; its index is not locked, and it does not notice a
change in a module that the function uses. So every specialisation gets a file of its own, named for the
kernel, its constants and a digest of all sources of this package and of the processor. Two processes that
compile at the same time then write the same thing or different files, and an upgrade or another node never
runs stale code. On one machine they do not: workers that start together wait for the first of them and read
what it has written.

Numba takes its thread pool from TBB or OpenMP where it finds one; its own last resort, `workqueue`, aborts
when two Python threads call parallel kernels at once. Call them from one thread of a process at a time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from functools import cache, partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from zlib import crc32

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.core import cgutils
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype
from numpy.typing import DTypeLike

from stages.base.compilation import getting
from stages.lqcd.kernels.cpu.recording import Call, done

LOCKS = 64
"""Files that keep order among processes; a kernel has the one that its name hashes to."""

ROOM = 2048
"""Bytes that the arguments of a call take at most."""


def _digest() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
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
    """A compiled function and the one that calls it from threads; the code lives as long as `share`."""

    share: Any
    address: int
    items: Callable[..., int]
    launch: Callable[..., int]

    def __call__(self, *arguments: Any) -> None:
        done(Call(self.launch, self.address, self.items(*arguments), get_num_threads(), arguments))


@dataclass(frozen=True, slots=True)
class Serial:
    """A compiled function for the thread that calls it: the little work between two kernels."""

    function: Any
    address: int
    launch: Callable[..., int]

    def __call__(self, *arguments: Any) -> None:
        done(Call(self.launch, self.address, 1, 1, arguments))


def compiled(function: Callable[..., None], name: str, signature: Any, items: Callable[..., int]) -> Kernel:
    """`function(low, high, *arguments)` for all items, in parallel, compiled under a unique `name`.

    The result takes `arguments` alone, of the types of `signature`, and `items` says of them how many there
    are; no item may depend on another.

    IEEE arithmetic as written. The compiler must not fuse products and sums: it would choose differently for
    code that it has just compiled and for the same code read back from the cache, and results would depend
    on who compiled. Kernels that live on fused products ask for each (`vector_ir`).
    """
    share = _cached(
        function, name, types.void(types.uintp, types.uintp, *signature.args), pipeline_class=_CalledByAddress
    )
    return Kernel(share, _address(share), items, _launcher(types.Tuple(signature.args), shared=True))


def compiled_serial(function: Callable[..., None], name: str, signature: Any) -> Serial:
    """Compile a `function(*arguments)` under a unique `name`."""
    result = _cached(function, name, types.void(*signature.args), pipeline_class=_CalledByAddress)
    return Serial(result, _address(result), _launcher(types.Tuple(signature.args), shared=False))


def compiled_control(function: Callable[..., Any], name: str, signature: Any) -> Callable[..., Any]:
    """Compile a `function(*arguments)` that calls others and is never part of a step."""
    return _cached(function, name, signature)


def _cached(function: Callable[..., Any], name: str, signature: Any, **options: Any) -> Any:
    function.__name__ = function.__qualname__ = f"{name}_{DIGEST}"
    with getting() as kernel, _turn(function.__name__):
        result = njit(signature, cache=True, error_model="numpy", **options)(function)
        kernel.compiled |= bool(result.stats.cache_misses)
    return result


class _WithoutWrappers(CompilerBase):
    """Numba's compiler for what Python does not call."""

    def define_pipelines(self) -> list[Any]:
        flags = self.state.flags
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]


class _CalledByAddress(_WithoutWrappers):
    """The same where arguments do not overlap."""

    def define_pipelines(self) -> list[Any]:
        self.state.flags.noalias = True
        return super().define_pipelines()


inlined = njit(error_model="numpy", pipeline_class=_WithoutWrappers)
"""Decorates what kernels call and becomes a part of them. Python must not call it: it has no wrapper."""


@cache
def _launcher(arguments: Any, shared: bool) -> Callable[..., int]:
    """Calls the compiled function at an address with arguments of these types.

    shared: with (low, high, *arguments) from so many threads. Numba takes as long for a parallel loop as for
    a kernel. So there is one, for arguments of any types, and what is compiled for theirs only lays them
    where the threads read them. Given a `room` of `ROOM` bytes, it lays them there, and calls nothing. The
    result is the address of what takes them from there.
    """
    bounds = int(shared)

    def launch(loop: int, address: int, items: int, threads: int, room: int, arguments: tuple) -> int:
        return _lay_out(loop, address, items, threads, room, arguments, bounds)

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
            _call(address, 0, items, place)
            return
        for thread in prange(threads):
            _call(address, items * thread // threads, items * (thread + 1) // threads, place)

    return _address(_cached(loop, "thread_loop", types.void(*4 * [types.intp]), parallel=True))


def _address(function: Any) -> int:
    """Of the one specialisation of a compiled function."""
    (result,) = function.overloads.values()
    return result.library.get_pointer_to_function(result.fndesc.llvm_func_name)


@intrinsic(prefer_literal=True)
def _lay_out(
    typing: Any, loop: Any, address: Any, items: Any, threads: Any, room: Any, arguments: Any, bounds: Any
) -> Any:
    """Call of the loop at `loop` over a taker of `arguments` from the stack; none if they go to a room.

    bounds: literally 1 if the function takes the first item and the one behind the last before them.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        start, function, count, share, kept, others, _ = values
        pairs = zip(arguments.types, cgutils.unpack_tuple(builder, others), strict=True)
        borrowed = [_borrowed(context, builder, kind, value) for kind, value in pairs]
        laid = cgutils.pack_struct(builder, [function, *borrowed])
        if context.get_abi_sizeof(laid.type) > ROOM:
            raise ValueError(f"arguments of a kernel must fit {ROOM} bytes, got {arguments}")
        on_stack = builder.icmp_unsigned("==", kept, kept.type(0))
        stack = cgutils.alloca_once(builder, laid.type)
        place = builder.select(on_stack, stack, builder.inttoptr(kept, stack.type))
        builder.store(laid, place)
        take = _taker(context, builder.module, laid.type, arguments.types, bool(bounds.literal_value))
        taker, at = (builder.ptrtoint(pointer, count.type) for pointer in (take, place))
        with builder.if_then(on_stack):
            _call_at(context, builder, start, 4 * (types.intp,), [taker, at, count, share])
        return taker

    return types.intp(*5 * (types.intp,), arguments, bounds), generate


def _borrowed(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """An argument, of an array without its owner: nothing counts who holds it."""
    if not isinstance(kind, types.Array):
        return value
    array = context.make_array(kind)(context, builder, value)
    array.meminfo = cgutils.get_null_value(array.meminfo.type)
    return array._getvalue()


def _taker(context: Any, module: Any, laid: ir.Type, arguments: tuple, bounded: bool) -> ir.Function:
    """(low, high, place): calls the function whose address and arguments lie at a place."""
    convention = context.call_conv
    kind = convention.get_function_type(types.void, 3 * (types.intp,))
    function = ir.Function(module, kind, module.get_unique_name("take"))
    function.linkage = "internal"
    builder = ir.IRBuilder(function.append_basic_block())
    low, high, place = convention.get_arguments(function)
    address, *others = cgutils.unpack_tuple(builder, builder.load(builder.inttoptr(place, laid.as_pointer())))
    bounds, kinds = ([low, high], 2 * (types.intp,)) if bounded else ([], ())
    _call_at(context, builder, address, (*kinds, *arguments), [*bounds, *others])
    convention.return_value(builder, context.get_dummy_value())
    return function


@intrinsic
def call_loop(typing: Any, loop: Any, taker: Any, place: Any, items: Any, threads: Any) -> Any:
    """Call of the loop at an address."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _call_at(context, builder, values[0], signature.args[1:], values[1:])
        return context.get_dummy_value()

    return types.void(*5 * (types.intp,)), generate


@intrinsic
def _call(typing: Any, address: Any, low: Any, high: Any, place: Any) -> Any:
    """Call of a compiled function of three integers."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _call_at(context, builder, values[0], signature.args[1:], values[1:])
        return context.get_dummy_value()

    return types.void(*4 * (types.intp,)), generate


def _call_at(context: Any, builder: Any, address: Any, parameters: tuple, values: list) -> None:
    """Call of the compiled function at an address, one that raises nothing."""
    convention = context.call_conv
    kind = convention.get_function_type(types.void, parameters)
    function = builder.inttoptr(address, kind.as_pointer())
    convention.call_function(builder, function, types.void, parameters, values)


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
        flock(lock, LOCK_EX)
        yield


def array_type(dtype: DTypeLike, dimensions: int, *, writable: bool = False) -> types.Array:
    """Numba's type of a C-contiguous array; a read-only type takes writable arrays too."""
    return types.Array(from_dtype(np.dtype(dtype)), dimensions, "C", readonly=not writable)
