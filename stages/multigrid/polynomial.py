"""A smoother that does up to four steps of minimal residual at once.

    v_0 = r,  v_{j+1} = A v_j,   c: the shortest r - sum_j c_j v_{j+1},   y = sum_j c_j v_j

In exact arithmetic that is GCR with as many steps, whose fields are read some four times as often: here all
products are taken in one pass over the v_j and the sums in one each (the communication-avoiding GCR of
M. Hoemmen, thesis, Berkeley 2010, with powers for a basis). Powers are good for a few steps only, the
directions of many depend on each other within rounding: more steps are several runs, each from the residual
of the one before.
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
    """`steps` products with the operator, in runs of at most four; each right-hand side by itself."""

    steps: int = 6

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"a smoother needs at least one step, got {self.steps}")

    @property
    def runs(self) -> tuple[int, ...]:
        """Steps of each run, the longest first."""
        count = -(-self.steps // (MOST_FIELDS - 1))
        return tuple((self.steps + run) // count for run in reversed(range(count)))

    def relax(self, A: LinearOperator, r: Array) -> Smoothed:
        """y of A y = r, and the residual that is left; r is kept."""
        xp, lanes = array_module(r), kernels_for(r).lane_blas
        v = xp.empty((self.runs[0] + 1, *r.shape), r.dtype)
        v[0], y = r, xp.zeros_like(r)
        for steps in self.runs:
            c = self._powers(A, v[: steps + 1])
            lanes.lane_update(y, v[:steps], c)
            lanes.lane_update(v[0], v[1 : steps + 1], -c)
        return Smoothed(y, v[0])

    def _powers(self, A: LinearOperator, v: Array) -> Array:
        """v_1, v_2, ... from v_0, and c ``[steps, N]``."""
        for j in range(len(v) - 1):
            A.apply(v[j], v[j + 1])
        gram = kernels_for(v).lane_gram
        return gram.lane_least_squares(gram.lane_gram(v))
