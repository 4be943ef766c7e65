"""Functions that Numba compiles for the arguments of their first call, for use in threads."""

from __future__ import annotations

from typing import Any

from numba import njit, typeof

from stages.base.compilation import getting

compiled_on_call = njit(nogil=True, cache=True)


def compile_for(function: Any, *arguments: object) -> None:
    """Compile a function for such arguments, or read it, here: threads that call it then find it there."""
    signature = tuple(map(typeof, arguments))
    if signature not in function.overloads:
        with getting() as kernel:
            before = sum(function.stats.cache_misses.values())
            function.compile(signature)
            kernel.compiled |= sum(function.stats.cache_misses.values()) > before
