"""A smoother that does up to four steps of minimal residual at once.

    v_0 = r,  v_{j+1} = A v_j,   c: the shortest r - sum_j c_j v_{j+1},   y = sum_j c_j v_j

In exact arithmetic that is GCR with as many steps, whose fields are read some four times as often: here all
products are taken in one pass over the v_j and both sums in another (the communication-avoiding GCR of
M. Hoemmen, thesis, Berkeley 2010, with powers for a basis). Powers are good for a few steps only, the
directions of many depend on each other within rounding: more steps are several runs, each from the residual
of the one before.
"""

from __future__ import annotations

from dataclasses import dataclass

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import block_blas, lane_blas
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, field_like, zeros_like
from stages.lqcd.kernels.lane_blas import MOST_FIELDS
from stages.lqcd.multigrid.smoother import Smoothed


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
        """Smoothed y of A y = r, and the residual that is left; r is kept."""
        y, v = zeros_like(r), self._powers(r)
        assign(v[0], r)
        self._run(A, v, y)
        return Smoothed(y, v[0])

    def improve(self, A: LinearOperator, b: Array, x: Array) -> None:
        """Improve x of A x = b by the steps, in place; b is kept."""
        v = self._powers(x)
        block_blas.difference(b, A.apply(x, v[1]), v[0])
        self._run(A, v, x)

    def improve_by(self, A: LinearOperator, v: Array, x: Array) -> None:
        """`improve` from the residual v_0 = b - A x and its powers v_k = A^k v_0, more than a run takes.

        v ``[k, ..., N]`` changes.
        """
        self._run(A, v, x, powers=len(v) - 1)

    def _powers(self, like: Array) -> Array:
        """Room for v_0, v_1, ... of the longest run."""
        return field_like(like, (self.runs[0] + 1, *like.shape))

    def _run(self, A: LinearOperator, v: Array, y: Array, powers: int = 0) -> None:
        """Add to y what the steps find for the residual v_0, which they change; `powers` of it are there."""
        for steps in self.runs:
            for j in range(powers, steps):
                A.apply(v[j], v[j + 1])
            basis, powers = v[: steps + 1], 0
            c = lane_blas.lane_least_squares(lane_blas.lane_gram(basis))
            lane_blas.lane_polynomial(y, basis, c)
