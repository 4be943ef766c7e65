"""Work on independent blocks of a field, on as many threads as Numba may use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def most_threads() -> int:
    """Number of threads by NUMBA_NUM_THREADS, or one for each processor."""
    from numba import config

    return int(config.NUMBA_NUM_THREADS)


@contextmanager
def kernels_in_one_thread() -> Iterator[None]:
    """Compiled kernels take one thread: others would wait actively for what NumPy does between them."""
    from numba import get_num_threads, set_num_threads

    before = get_num_threads()
    set_num_threads(1)
    try:
        yield
    finally:
        set_num_threads(before)


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """``[work(item) for item in items]`` by NUMBA_NUM_THREADS threads; results in the order of the items.

    For work that releases the GIL: NumPy on large arrays, file reads, and kernels compiled with ``nogil``.
    Unlike a parallel Numba kernel it can be called from several Python threads at once, whatever the
    threading layer. Sums are reproducible for any number of threads as long as the caller adds up the results
    in order.
    """
    with ThreadPoolExecutor(max_workers=most_threads()) as pool:
        return list(pool.map(work, items))
