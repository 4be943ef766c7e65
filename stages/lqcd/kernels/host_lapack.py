"""Cholesky factors on the host, and BLAS in one thread, in scripts and notebooks as in workers.

What eigensolvers and multigrid setups ask of BLAS and LAPACK are many small matrices: more threads cost more
to wake than they gain.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from math import isfinite
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
R = TypeVar("R")

Matrix = NDArray[np.complex128]


def in_one_blas_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that BLAS takes one thread while it runs, and as many as before afterwards."""

    @wraps(function)
    def limited(*arguments: P.args, **named: P.kwargs) -> R:
        with _libraries().limit(limits=1, user_api="blas"):
            return function(*arguments, **named)

    return limited


@cache
def _libraries() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401  brings a BLAS of its own, which must be there when libraries are looked for
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def cholesky(G: Matrix) -> tuple[Matrix, Matrix, float]:
    """Upper triangular S and S^-1 with G = S^H S, and the condition of G scaled to a unit diagonal.

    The condition is that of Frobenius norms, N^2 times too large at most; infinite where G is not positive.
    G may be empty.
    """
    if not len(G):
        return G, G, 1.0
    with np.errstate(all="ignore"):
        norms = np.sqrt(G.diagonal().real)
        inverses = 1 / norms
        upper, fault = scipy.linalg.lapack.zpotrf(G * (inverses[:, None] * inverses), lower=0, clean=1)
        if fault:
            return upper, upper, np.inf
        inverse, _ = scipy.linalg.lapack.ztrtri(upper, lower=0)
        condition = float(np.vdot(upper, upper).real * np.vdot(inverse, inverse).real)
        return upper * norms, inverse * inverses[:, None], condition if isfinite(condition) else np.inf
