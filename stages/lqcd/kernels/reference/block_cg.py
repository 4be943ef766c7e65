"""An iteration of block CGrQ (`stages.lqcd.solvers.block_cgrq`): its sums, small algebra and pass over the
blocks.

Blocks ``[..., w]`` are the orthonormal Q, the directions P and A P; X is ``[..., N]``.
"""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.block_coefficients import CONDITION, DRIFT, BlockCoefficients
from stages.lqcd.kernels.cholesky import Matrix, cholesky
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.operands import check_step
from stages.lqcd.kernels.reference.block_blas import gram, rotate, rotate_add, update


def repeatable(width: int, dtype: np.dtype) -> bool:
    """Whether the functions below keep the rules of `stages.lqcd.kernels.reference.stream.repeated`."""
    return True


def iteration_grams(p: Array, ap: Array, q: Array, a: BlockCoefficients) -> None:
    """P^H A P, (A P)^H A P and Q^H Q, all Hermitian, into a.grams."""
    check_step(a, p=p, ap=ap, q=q)
    pap = gram(p, ap)
    a.grams[...] = np.stack([(pap + pap.conj().T) / 2, gram(ap, ap), gram(q, q)])


def step_coefficients(a: BlockCoefficients, rank: int, unit: float) -> None:
    """The coefficients that follow from a.grams and a.c; a.c becomes the new C if the iteration is ordinary.

    rank: columns of the blocks and rows of C that are not zero; unit: rounding unit of the blocks.
    """
    padding = np.diag(np.arange(len(a.c)) >= rank)  # makes columns of zeros stay what they are
    pap, ap2, q2 = a.grams + np.array([1, 2, 1])[:, None, None] * padding
    a.summary[0] = 0
    if not abs(q2 - np.eye(len(q2))).max() < DRIFT:
        return
    _, root, condition = cholesky(pap)
    if not condition * unit < CONDITION:
        return
    alpha = root @ (root.conj().T @ q2)
    advance = alpha.conj().T @ ap2 @ alpha
    S, T, condition = cholesky(advance - q2)
    if not (np.isfinite(condition) and _amplification(advance, T) * unit < DRIFT):
        return
    a.x[...], a.q[...], a.ap[...] = alpha @ a.c, T, -alpha @ T
    a.p[...] = 2 * S.conj().T - q2 @ S.conj().T  # M^-1 S^H, M being near one
    a.c[...] = S @ a.c
    a.summary[1:] = np.sqrt((a.c.real**2 + a.c.imag**2).sum(axis=0))
    a.summary[0] = 1


def _amplification(advance: Matrix, T: Matrix) -> float:
    """How far Q^H Q is from one if the Gram matrices it was predicted from are off by one."""
    return float(advance.diagonal().real.mean() * np.vdot(T, T).real)


def block_step(x: Array, q: Array, p: Array, ap: Array, a: BlockCoefficients) -> None:
    """X += P a.x, Q = Q a.q + A P a.ap, P = Q + P a.p in place; nothing at all unless it is ordinary."""
    check_step(a, x=x, q=q, p=p, ap=ap)
    if a.summary[0]:
        update(x, p, a.x)
        rotate(q, a.q, q)
        update(q, ap, a.ap)
        rotate_add(q, p, a.p, p)
