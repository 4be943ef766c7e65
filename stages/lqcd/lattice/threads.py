"""Work on independent blocks of a field, on as many threads as Numba may use, and its compiled functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numba
from numba import njit, typeof

from stages.base.compilation import getting

Item = TypeVar("Item")
Result = TypeVar("Result")

compiled_on_call = njit(nogil=True, cache=True)


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """``[work(item) for item in items]`` by NUMBA_NUM_THREADS threads; results in the order of the items.

    For work that releases the GIL: NumPy on large arrays, file reads, and kernels compiled with ``nogil``.
    Unlike a parallel Numba kernel it can be called from several Python threads at once, whatever the
    threading layer. Sums are reproducible for any number of threads as long as the caller adds up the results
    in order.
    """
    with ThreadPoolExecutor(max_workers=numba.config.NUMBA_NUM_THREADS) as pool:
        return list(pool.map(work, items))


def compile_for(function: Any, *arguments: object) -> None:
    """Compile a function for such arguments, or read it, here: threads that call it then find it there."""
    signature = tuple(map(typeof, arguments))
    if signature not in function.overloads:
        with getting() as kernel:
            before = sum(function.stats.cache_misses.values())
            function.compile(signature)
            kernel.compiled |= sum(function.stats.cache_misses.values()) > before
