"""Ritz values of a short Lanczos run, which bounds and zeros of polynomials are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import block_blas
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.kernels.fields import copied, field_like

STEPS = 24
"""Of Lanczos: the ends of a spectrum are known to some percent then."""


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
