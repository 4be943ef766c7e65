"""How the CPU kernels are compiled: one Numba function per (kernel, right-hand sides, dtype), cached on disk.

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
from fcntl import LOCK_EX, flock
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from zlib import crc32

import llvmlite.binding as llvm
import numpy as np
from numba import njit, types
from numba.np.numpy_support import from_dtype
from numpy.typing import DTypeLike

LOCKS = 64
"""Files that keep order among processes; a kernel has the one that its name hashes to."""


def compiled(function: Callable[..., None], name: str, signature: Any) -> Callable[..., None]:
    """`function`, parallel by `numba.prange`, compiled for this processor under a unique `name`.

    IEEE arithmetic as written. The compiler must not fuse products and sums: it would choose differently for
    code that it has just compiled and for the same code read back from the cache, and results would depend
    on who compiled. Kernels that live on fused products ask for each (`vector_ir`).
    """
    function.__name__ = function.__qualname__ = f"{name}_{_digest()}"
    with _turn(function.__name__):
        return njit(signature, parallel=True, cache=True, error_model="numpy")(function)


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


@cache
def _digest() -> str:
    digest = hashlib.sha256()
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    digest.update(llvm.get_host_cpu_name().encode())
    digest.update(llvm.get_host_cpu_features().flatten().encode())
    return digest.hexdigest()[:12]


def array_type(dtype: DTypeLike, dimensions: int, *, writable: bool = False) -> types.Array:
    """Numba's type of a C-contiguous array; a read-only type takes writable arrays too."""
    return types.Array(from_dtype(np.dtype(dtype)), dimensions, "C", readonly=not writable)
