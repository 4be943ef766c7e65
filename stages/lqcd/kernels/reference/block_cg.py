"""Sums of `block_blas`, small algebra in NumPy."""

from __future__ import annotations

import numpy as np

from stages.lqcd.kernels.block_cg import BlockCoefficients
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.reference.block_blas import gram, rotate, rotate_add


def iteration_grams(p: Array, ap: Array, q: Array, a: BlockCoefficients) -> None:
    pap = gram(p, ap)
    a.grams[...] = np.stack([(pap + pap.conj().T) / 2, gram(ap, ap), gram(q, q)])


def block_step(x: Array, q: Array, p: Array, ap: Array, a: BlockCoefficients) -> None:
    if a.summary[0]:
        rotate_add(x, p, a.x, x)
        rotate(q, a.q, q)
        rotate_add(q, ap, a.ap, q)
        rotate_add(q, p, a.p, p)
