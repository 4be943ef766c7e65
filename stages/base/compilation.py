"""Seconds that a thread waits for its kernels, which are compiled or read from a cache on disk.

Whoever compiles says so, in a block of `getting`; a forecast learns from what `taken` gives, apart from the
seconds of work. What other threads compile ahead counts as far as somebody waits for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Kernels(NamedTuple):
    """Kernels of one kind, the seconds that they were waited for, and the memory that they left taken."""

    number: int = 0
    seconds: float = 0.0
    nbytes: int = 0
    """Of the process on the host, compilers and their libraries included."""

    def plus(self, other: Kernels) -> Kernels:
        """Both together."""
        number, seconds, nbytes = other
        return Kernels(self.number + number, self.seconds + seconds, self.nbytes + nbytes)


STATM, PAGE = Path("/proc/self/statm"), os.sysconf("SC_PAGE_SIZE")

COMPILED, READ = "compiled", "read"
FOR_LATTICE = " for the lattice"
"""End of the kind of kernels that hold for one size of the lattice alone: another size compiles others."""


@dataclass
class Getting:
    """Kernel that is being waited for."""

    compiled: bool = False


@dataclass
class _Waited(threading.local):
    taken: dict[str, Kernels] = field(default_factory=dict)
    outermost: Getting | None = None
    compiled: int = 0
    """Kernels that this thread compiled since `telling` began."""
    tell: Callable[[int], None] | None = None


_waited = _Waited()


@contextmanager
def getting(*, for_lattice: bool = False) -> Iterator[Getting]:
    """Time a block that gets a kernel; a block within another one is a part of it.

    for_lattice: of kernels that hold for one lattice. Whoever compiled sets `compiled`.
    """
    if _waited.outermost is not None:
        yield _waited.outermost
        return
    _waited.outermost = kernel = Getting()
    began, before = time.perf_counter(), resident_set()
    try:
        yield kernel
    finally:
        _waited.outermost = None
        kind = (COMPILED if kernel.compiled else READ) + (FOR_LATTICE if for_lattice else "")
        _add(kind, Kernels(1, time.perf_counter() - began, max(0, resident_set() - before)))


@contextmanager
def telling(tell: Callable[[int], None]) -> Iterator[None]:
    """Tell how many kernels this thread has compiled in the block: after each, and where it waits for one."""
    _waited.compiled, _waited.tell = 0, tell
    try:
        yield
    finally:
        _waited.tell = None


def tell_of_wait() -> None:
    """Tell that this thread waits for a kernel which another process compiles."""
    if _waited.tell:
        _waited.tell(_waited.compiled)


def got(began: float, *, compiled: bool) -> None:
    """Add a kernel that was compiled or read since `began`, by `perf_counter`; in a block, as part of it."""
    if _waited.outermost is not None:
        _waited.outermost.compiled |= compiled
    else:
        _add(COMPILED if compiled else READ, Kernels(1, time.perf_counter() - began))


def _add(kind: str, kernels: Kernels) -> None:
    add({kind: kernels}, _waited.taken)
    if _waited.tell and kind.startswith(COMPILED):
        _waited.compiled += kernels.number
        _waited.tell(_waited.compiled)


def add(more: Mapping[str, Kernels], to: dict[str, Kernels]) -> None:
    """Add kernels to others, kind by kind."""
    for kind, kernels in more.items():
        to[kind] = to.get(kind, Kernels()).plus(kernels)


def taken() -> dict[str, Kernels]:
    """Kernels by kind that this thread got since the last call."""
    since, _waited.taken = _waited.taken, {}
    return since


def resident_set() -> int:
    """Bytes of this process in the host's memory; 0 where Linux does not say."""
    try:
        return int(STATM.read_text().split()[1]) * PAGE
    except OSError:
        return 0
