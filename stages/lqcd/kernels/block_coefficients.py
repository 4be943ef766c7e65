"""Small matrices of a block CGrQ iteration (`stages.lqcd.solvers.block_cgrq`), kept where its blocks are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stages.lqcd.kernels.dispatch import Array, array_module

DRIFT = 1e-2
"""An iteration is ordinary while Q^H Q, as measured and as predicted, is that close to one."""

CONDITION = 1 / 32
"""An iteration is ordinary while the condition of P^H A P times the rounding unit is below this."""


@dataclass(frozen=True)
class BlockCoefficients:
    """Matrices of a block of width w for N right-hand sides; all complex128 but the last.

    grams ``[3, w, w]``: P^H A P, (A P)^H A P, Q^H Q. c ``[w, N]``: C. x ``[w, N]``: alpha C. q (upper
    triangular), ap, p ``[w, w]``: T, -alpha T, beta. summary, float64 ``[1 + N]``: 1 if the iteration is an
    ordinary one, then the norms of the columns of the new C; if it is 0, x, q, ap and p mean nothing.
    """

    grams: Array
    c: Array
    x: Array
    q: Array
    ap: Array
    p: Array
    summary: Array
    _kept: dict[tuple[str, tuple[int, ...]], Array] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, c: Array, like: Array) -> BlockCoefficients:
        """With a copy of this C, in the library of `like`."""
        xp, (w, n) = array_module(like), c.shape
        squares, rows = xp.zeros((6, w, w), np.complex128), xp.zeros((2, w, n), np.complex128)
        rows[0] = xp.asarray(c)
        return cls(squares[:3], rows[0], rows[1], squares[3], squares[4], squares[5], xp.zeros(1 + n))

    def workspace(self, purpose: str, shape: tuple[int, ...], dtype: Any = np.complex128) -> Array:
        """Room of this shape, the same array whenever it is asked for: a captured graph may hold it.

        Another shape is another array: kernels that are being tuned ask for partial sums of many grids.
        """
        key = purpose, shape
        if key not in self._kept:
            self._kept[key] = array_module(self.c).empty(shape, dtype)
        return self._kept[key]
