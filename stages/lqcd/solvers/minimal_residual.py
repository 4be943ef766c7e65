"""Minimal residual iteration with a fixed number of steps: a smoother.

    w = A r,  alpha = omega w^H r / |w|^2,  y += alpha r,  r -= alpha w

with alpha of each right-hand side by itself. No convergence test: nothing waits for the host. (Y. Saad,
Iterative Methods for Sparse Linear Systems, 2nd ed., algorithm 5.2; omega as in arXiv:1612.07873.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import block_blas, lane_blas
from stages.lqcd.kernels.cg_update import quotient
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, field_like, zeros_like


class Smoothed(NamedTuple):
    """y and the residual r - A y, both ``[..., N]``."""

    y: Array
    residual: Array


@dataclass(frozen=True)
class MinimalResidual:
    """`steps` steps with under- or over-relaxation omega, in the precision of the operator and the fields."""

    steps: int = 4
    omega: float = 0.85

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"a smoother needs at least one step, got {self.steps}")
        if not 0 < self.omega < 2:
            raise InputError(f"omega must lie between 0 and 2, got {self.omega}")

    def relax(self, A: LinearOperator, r: Array) -> Smoothed:
        """Approximate y of A y = r, from y = 0; r ``[*A.shape, N]`` is kept."""
        fields = field_like(r, (2, *r.shape))  # w and r, side by side for one sum
        y = zeros_like(r)
        assign(fields[1], r)
        w, residual = fields
        for _ in range(self.steps):
            A.apply(residual, w)
            w2, rw = lane_blas.lane_dots(fields, w)
            alpha = quotient(self.omega * rw.conj(), w2.real, w2.real > 0)
            lane_blas.lane_update(y, fields[1:], alpha[None])
            lane_blas.lane_update(residual, fields[:1], -alpha[None])
        return Smoothed(y, residual)

    def improve(self, A: LinearOperator, b: Array, x: Array) -> None:
        """Improve x ``[*A.shape, N]`` of A x = b by the steps, in place; b is kept."""
        left = A.apply(x)
        block_blas.difference(b, left, left)
        block_blas.add(x, self.relax(A, left).y)
