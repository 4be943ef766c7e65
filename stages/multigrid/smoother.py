"""Smoothers of multigrid cycles: a few steps with no test of convergence.

`stages.solvers.minimal_residual.MinimalResidual` is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from stages.dirac.operator import LinearOperator
from stages.kernels.dispatch import Array, array_module, kernels_for
from stages.lattice.errors import InputError
from stages.solvers.gcr import GCRSpace
from stages.solvers.minimal_residual import Smoothed


class Smoother(Protocol):
    """A few steps that reduce what the coarse grid cannot represent."""

    def relax(self, A: LinearOperator, r: Array) -> Smoothed:
        """y of A y = r, and the residual that is left; r is kept."""


@dataclass(frozen=True)
class GCRSmoother:
    """`steps` steps of GCR: a residual shorter than that of minimal residual for as many products."""

    steps: int = 4

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"a smoother needs at least one step, got {self.steps}")

    def relax(self, A: LinearOperator, r: Array) -> Smoothed:
        never = array_module(r).zeros(r.shape[-1])
        space = GCRSpace(A, kernels_for(r), r.copy(), self.steps, None, never)
        for _ in range(self.steps):
            space.step()
        return Smoothed(space.solution(), space.r)
