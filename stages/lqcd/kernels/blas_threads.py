"""BLAS in one thread inside of eigensolvers and multigrid setups, in scripts and notebooks as in workers.

What these ask of BLAS and LAPACK are many small matrices: more threads cost more to wake than they gain.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

import scipy.linalg  # noqa: F401  brings a BLAS of its own, which must be there when libraries are looked for
from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
R = TypeVar("R")


def in_one_blas_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that BLAS takes one thread while it runs, and as many as before afterwards."""

    @wraps(function)
    def limited(*arguments: P.args, **named: P.kwargs) -> R:
        with _libraries().limit(limits=1, user_api="blas"):
            return function(*arguments, **named)

    return limited


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
