"""An iteration of block CGrQ (`stages.lqcd.solvers.block_cgrq`): its sums, small algebra and pass over the
blocks.

Nothing here waits for the host, and what is not ordinary stops itself: all can be queued ahead.
"""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.block_coefficients import CONDITION, DRIFT, BlockCoefficients
from stages.lqcd.kernels.cuda.block_blas import gram, multiply_add, sum_partials
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import block_cg as shapes
from stages.lqcd.kernels.cuda.tuning.choice import timed_where
from stages.lqcd.kernels.operands import check_step


def repeatable(width: int, dtype: np.dtype) -> bool:
    """Whether the functions below keep the rules of `stages.lqcd.kernels.reference.stream.repeated`."""
    return bool(shapes.grams_candidates(width, np.dtype(dtype)))


def iteration_grams(p: cupy.ndarray, ap: cupy.ndarray, q: cupy.ndarray, a: BlockCoefficients) -> None:
    """P^H A P, (A P)^H A P and Q^H Q, all Hermitian, into a.grams."""
    check_step(a, p=p, ap=ap, q=q)
    n, rows = p.shape[-1], p.size // p.shape[-1]
    if not shapes.grams_candidates(n, p.dtype):
        pap = gram(p, ap)
        a.grams[...] = cupy.stack([(pap + pap.conj().T) / 2, gram(ap, ap), gram(q, q)])
        return
    kernel = shapes.iteration_grams(n, p.dtype, rows)
    partials = a.workspace("partial sums", (kernel.grid[0], 3, n, n))
    run(kernel, p, ap, q, partials, np.int64(rows))
    sum_partials(partials, a.grams)


def step_coefficients(a: BlockCoefficients, rank: int, unit: float) -> None:
    """The coefficients that follow from a.grams and a.c; a.c becomes the new C if the iteration is ordinary.

    rank: columns of the blocks and rows of C that are not zero; unit: rounding unit of the blocks.
    """
    w, n = a.c.shape
    workspace = (
        a.workspace("small algebra", (shapes.small_elements(w),)) if w > shapes.IN_SHARED else np.uintp(0)
    )
    run(
        shapes.step_coefficients(w, n),
        *(a.grams, a.c, a.x, a.q, a.ap, a.p, a.workspace("new c", (w, n)), a.summary, workspace),
        *(np.int32(rank), np.float64(unit), np.float64(DRIFT), np.float64(CONDITION)),
    )


@timed_where(lambda x, q, p, ap, a: bool(a.summary[0]))
def block_step(
    x: cupy.ndarray, q: cupy.ndarray, p: cupy.ndarray, ap: cupy.ndarray, a: BlockCoefficients
) -> None:
    """X += P a.x, Q = Q a.q + A P a.ap, P = Q + P a.p in place; nothing at all unless it is ordinary."""
    check_step(a, x=x, q=q, p=p, ap=ap)
    n, rows = p.shape[-1], p.size // p.shape[-1]
    if x.shape == p.shape and shapes.step_candidates(n, p.dtype):
        kernel = shapes.block_step(n, p.dtype, rows)
        run(kernel, x, q, p, ap, a.x, a.q, a.ap, a.p, a.summary, np.int64(rows))
        return
    multiply_add(p, a.x, x, x, a.summary)
    multiply_add(q, a.q, None, q, a.summary)
    multiply_add(ap, a.ap, q, q, a.summary)
    multiply_add(p, a.p, q, p, a.summary)
