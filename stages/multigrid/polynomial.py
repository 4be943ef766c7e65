"""A smoother that does all its steps of minimal residual at once.

    v_0 = r,  v_{j+1} = A v_j,   c: the shortest r - sum_j c_j v_{j+1},   y = sum_j c_j v_j

In exact arithmetic that is GCR with as many steps, whose fields are read some four times as often: here all
products are taken in one pass over the v_j and the sums in one each (the communication-avoiding GCR of
M. Hoemmen, thesis, Berkeley 2010, with powers for a basis). Powers are good for a few steps only: the
directions of many depend on each other within rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

from stages.dirac.operator import LinearOperator
from stages.kernels.dispatch import Array, array_module, kernels_for
from stages.kernels.reference.lane_gram import MOST_FIELDS
from stages.lattice.errors import InputError
from stages.solvers.minimal_residual import Smoothed


@dataclass(frozen=True)
class PolynomialSmoother:
    """`steps` steps, 1 to 4; every right-hand side has coefficients of its own."""

    steps: int = 4

    def __post_init__(self) -> None:
        if not 1 <= self.steps < MOST_FIELDS:
            raise InputError(f"a polynomial smoother has 1 to {MOST_FIELDS - 1} steps, got {self.steps}")

    def relax(self, A: LinearOperator, r: Array) -> Smoothed:
        """y of A y = r, and the residual that is left; r is kept."""
        xp, kernels = array_module(r), kernels_for(r)
        v = xp.empty((self.steps + 1, *r.shape), r.dtype)
        v[0] = r
        for j in range(self.steps):
            A.apply(v[j], v[j + 1])
        c = kernels.lane_gram.lane_least_squares(kernels.lane_gram.lane_gram(v))
        y = xp.zeros_like(r)
        kernels.lane_blas.lane_update(y, v[:-1], c)
        kernels.lane_blas.lane_update(v[0], v[1:], -c)
        return Smoothed(y, v[0])
