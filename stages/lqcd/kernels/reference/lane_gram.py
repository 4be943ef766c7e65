"""Gram matrices of a few fields and least squares among them, each right-hand side by itself.

A basis is an array ``[K, ..., N]``, C-contiguous, of K fields ``[..., N]``, at most `MOST_FIELDS`.
"""

from __future__ import annotations

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.operands import check_few_fields, check_gram

MOST_FIELDS = 5
"""Whose products a thread of a GPU keeps in registers."""

NOISE = 1e-10
"""A field whose squared sine of the angle to those before it is below this adds nothing but rounding."""


def lane_gram(xs: Array) -> Array:
    """G[j, k] = conj(xs[j]) . xs[k] of each right-hand side, complex128 ``[K, K, N]``; sums in double."""
    check_few_fields(xs, MOST_FIELDS)
    rows = xs.reshape(len(xs), -1, xs.shape[-1]).astype(complex)
    return array_module(xs).einsum("jrn,krn->jkn", rows.conj(), rows)


def lane_least_squares(gram: Array) -> Array:
    """c ``[K - 1, N]``, complex128, with the shortest xs[0] - sum_k c[k] xs[k + 1], from their `lane_gram`.

    By Cholesky's factors of the fields scaled to norm one; c is zero for fields that vanish or depend on
    those before them (`NOISE`).
    """
    check_gram(gram)
    xp, size = array_module(gram), len(gram) - 1
    norms2 = xp.stack([gram[k + 1, k + 1].real for k in range(size)])
    scale = xp.where(norms2 > 0, 1 / xp.sqrt(xp.where(norms2 > 0, norms2, 1)), 0)
    factor = xp.zeros((size, size, gram.shape[2]), complex)
    c = xp.zeros((size, gram.shape[2]), complex)
    inverse = xp.zeros((size, gram.shape[2]))
    for j in range(size):
        pivot = (norms2[j] > 0) - (abs(factor[j, :j]) ** 2).sum(axis=0)
        usable = pivot > NOISE
        inverse[j] = xp.where(usable, 1 / xp.sqrt(xp.where(usable, pivot, 1)), 0)
        for i in range(j + 1, size):
            product = gram[i + 1, j + 1] * scale[i] * scale[j]
            factor[i, j] = (product - (factor[i, :j] * factor[j, :j].conj()).sum(axis=0)) * inverse[j]
        c[j] = (gram[j + 1, 0] * scale[j] - (factor[j, :j] * c[:j]).sum(axis=0)) * inverse[j]
    for j in reversed(range(size)):
        c[j] = (c[j] - (factor[j + 1 :, j].conj() * c[j + 1 :]).sum(axis=0)) * inverse[j]
    return c * scale
