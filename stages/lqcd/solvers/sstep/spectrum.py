"""Ritz values of a short Lanczos run, which bounds and zeros of polynomials are made of."""

from __future__ import annotations

import weakref

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import block_blas, random_numbers
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.kernels.fields import copied, empty_field, field_like

STEPS = 24
"""Of Lanczos: the ends of a spectrum are known to some percent then."""
SEED = 2022
"""Of the vector that it starts from: values are the operator's alone, whatever is solved."""

_known: dict[tuple[int, np.dtype], tuple[weakref.ref[LinearOperator], NDArray[np.float64]]] = {}


def known_ritz_values(A: LinearOperator, dtype: np.dtype) -> NDArray[np.float64]:
    """`ritz_values` of A in a precision from a random vector, found once for an operator while it lives."""
    key = id(A), dtype
    known = _known.get(key)
    if known is None or known[0]() is not A:
        start = empty_field((*A.shape, 1), dtype, A.xp)
        random_numbers.fill_random(start, SEED, 0)
        values = ritz_values(A.astype(dtype), start)
        _known[key] = known = weakref.ref(A, lambda gone: _known.pop(key, None)), values
    return known[1]


def ritz_values(A: LinearOperator, start: Array, steps: int = STEPS) -> NDArray[np.float64]:
    """Ritz values of A, ascending, after so many steps from the first right-hand side of `start`.

    Without reorthogonalisation. Fewer where the Krylov space ends before.
    """
    v = copied(start[..., :1])
    before, w = None, field_like(v)
    diagonal, beside = list[float](), list[float]()
    block_blas.scale(v, 1 / _norm(v), v)
    for _ in range(steps):
        A.apply(v, w)
        diagonal.append(float(as_numpy(block_blas.dots(v, w)).real[0]))
        block_blas.affine(w, 1.0, v, -diagonal[-1])
        if before is not None:
            block_blas.affine(w, 1.0, before, -beside[-1])
        beside.append(_norm(w))
        if not beside[-1] > 1e-6 * max(map(abs, diagonal)):
            break
        block_blas.scale(w, 1 / beside[-1], w)
        before, v, w = v, w, field_like(v)
    matrix = (
        np.diag(diagonal) + np.diag(beside[: len(diagonal) - 1], 1) + np.diag(beside[: len(diagonal) - 1], -1)
    )
    return np.linalg.eigvalsh(matrix)


def _norm(field: Array) -> float:
    return float(np.sqrt(as_numpy(block_blas.norms2(field))[0]))
