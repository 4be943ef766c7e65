"""A Krylov recurrence for the correction of a block of right-hand sides, as reliable updates call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.kernels import block_blas
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.solvers.solution import SolveStatus

WIDTHS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
"""Widths that a block shrinks to: few, because kernels are compiled for each."""

Vector = NDArray[np.float64]
"""A number of each right-hand side, ``[N]``."""


class BreakdownError(Exception):
    """Raised by a recurrence that cannot go on."""

    def __init__(self, status: SolveStatus) -> None:
        super().__init__(status.value)
        self.status = status


class Recurrence(Protocol):
    """A Krylov method for the correction y of A y = r, for a block of columns, made with its residual."""

    @property
    def lag(self) -> int:
        """Iterations to start ahead of the estimate that is asked for: 0, or more to keep a device busy."""

    @property
    def full(self) -> bool:
        """True if the next iteration needs a replacement first: there is no room for another direction."""

    @property
    def correction(self) -> Array:
        """y, ``[..., width]``, of the inner precision; asked for at the end of a cycle."""

    def replace(self, residual: Array, target: Vector) -> None:
        """Start again from y = 0 with this true residual of the same columns, keeping the search directions.

        residual: ``[..., width]``, may be overwritten. target: norms to reach.
        """

    def directions(self, columns: NDArray[np.intp]) -> Any:
        """The search directions of these columns of the block, for the recurrence that takes over."""

    def start(self) -> int:
        """Begin an iteration; returns products with A, columns counted.

        On a device it returns before the iteration is done.
        """

    def estimate(self) -> Vector:
        """Residual norms ``[width]`` of the oldest iteration not yet asked for. Raises BreakdownError."""


@runtime_checkable
class Unattended(Protocol):
    """A recurrence that may iterate on the host while nobody looks, who would take as long as a kernel."""

    @property
    def unattended(self) -> bool:
        """True if `run` is to be called in place of `start` and `estimate`."""

    def run(self, most: int, delta: float) -> NDArray[np.float64]:
        """Residual norms ``[iterations, width]`` after each of up to `most` iterations, at least one.

        The last one is the first after which another number of columns is open, or the residual of one is
        below `delta` times its largest norm so far. Raises BreakdownError.
        """


@runtime_checkable
class Indirect(Protocol):
    """A recurrence whose estimates are norms of another field than the residual."""

    def believed(self, residual: Array) -> Vector:
        """The norms ``[width]`` that an estimate without rounding would be, of a true residual."""


Begin = Callable[[LinearOperator, Array, Vector, Any], Recurrence]
"""`KrylovSolver.begin`."""


def next_width(needed: int, width: int) -> int:
    """The narrowest of `WIDTHS` and `width` that holds `needed` columns."""
    return width if needed == width else min(w for w in (*WIDTHS, width) if w >= needed)


def column_norms(field: Array) -> Vector:
    """|field| of each right-hand side, float64 ``[N]`` on the host."""
    return np.sqrt(as_numpy(block_blas.norms2(field)))
