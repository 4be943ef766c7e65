"""Smoothers of multigrid cycles: a few steps with no test of convergence.

`stages.lqcd.multigrid.polynomial` has that of choice.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels.dispatch import Array


class Smoothed(NamedTuple):
    """y and the residual r - A y, both ``[..., N]``."""

    y: Array
    residual: Array


class Smoother(Protocol):
    """A few steps that reduce what the coarse grid cannot represent."""

    @property
    def steps(self) -> int:
        """Number of steps."""

    def relax(self, A: LinearOperator, r: Array) -> Smoothed:
        """Smoothed y of A y = r, and the residual that is left; r is kept."""

    def improve(self, A: LinearOperator, b: Array, x: Array) -> None:
        """Improve x of A x = b by the steps, in place; b is kept."""
