"""Small matrices of the host, and BLAS in one thread, in scripts and notebooks as in workers.

What solvers, eigensolvers and multigrid setups ask of BLAS and LAPACK are many small matrices: more threads
cost more to wake than they gain. Those with hundreds of rows are worked on by a GPU, where there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from math import isfinite
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

from stages.lqcd.kernels.dispatch import Array, array_module, as_numpy, to_device_like

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


MANY_ROWS = 192
"""From so many rows on a matrix of the host is worked on by a GPU that holds the vectors.

On one thread eigenvectors of 304, 560 and 1,072 rows take 0.09, 0.5 and 5.2 s.
"""


def eigenpairs_of(matrix: NDArray, like: Array) -> tuple[NDArray[np.float64], Matrix]:
    """Eigenvalues, ascending, and eigenvectors of a Hermitian matrix; of a large one where `like` lives."""
    if len(matrix) < MANY_ROWS or isinstance(like, np.ndarray):
        return np.linalg.eigh(matrix)
    values, vectors = array_module(like).linalg.eigh(to_device_like(np.ascontiguousarray(matrix), like))
    return as_numpy(values), as_numpy(vectors)


def rotated(matrix: Matrix, Q: Matrix, like: Array) -> Matrix:
    """Q^H M Q; `like`: as of `eigenpairs_of`."""
    if len(matrix) < MANY_ROWS or isinstance(like, np.ndarray):
        return Q.conj().T @ matrix @ Q
    M, Q = (to_device_like(np.ascontiguousarray(each), like) for each in (matrix, Q))
    return as_numpy(Q.conj().T @ M @ Q)


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
