"""Kernels that stop themselves where an iteration is not ordinary: nothing waits for the host."""

from __future__ import annotations

import cupy
import numpy as np

from stages.lqcd.kernels.block_cg import CONDITION, DRIFT, BlockCoefficients
from stages.lqcd.kernels.cuda.block_blas import gram, multiply_add, sum_partials
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import block_cg as shapes
from stages.lqcd.kernels.cuda.tuning.choice import timed_where


def repeatable(width: int, dtype: np.dtype) -> bool:
    return bool(shapes.grams_candidates(width, np.dtype(dtype)))


def iteration_grams(p: cupy.ndarray, ap: cupy.ndarray, q: cupy.ndarray, a: BlockCoefficients) -> None:
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
    n, rows = p.shape[-1], p.size // p.shape[-1]
    if x.shape == p.shape and shapes.step_candidates(n, p.dtype):
        kernel = shapes.block_step(n, p.dtype, rows)
        run(kernel, x, q, p, ap, a.x, a.q, a.ap, a.p, a.summary, np.int64(rows))
        return
    multiply_add(p, a.x, x, x, a.summary)
    multiply_add(q, a.q, None, q, a.summary)
    multiply_add(ap, a.ap, q, q, a.summary)
    multiply_add(p, a.p, q, p, a.summary)
