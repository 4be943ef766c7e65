"""The protocol between a Krylov method and the frame of `stages.lqcd.solvers.reliable`, which iterates it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.solvers.solution import Status

Vector = NDArray[np.float64]
"""A number of each right-hand side, ``[N]``."""


class BreakdownError(Exception):
    """Raised by a recurrence that cannot go on."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.value)
        self.status = status


class Recurrence(Protocol):
    """A Krylov method for the correction y of A y = r, for a block of columns."""

    narrows: bool
    """Whether converged columns are to be taken out as soon as a narrower block holds the others."""

    update_at: float
    """Fall of a residual that asks for its next replacement in single precision and in deflated solves."""

    @property
    def full(self) -> bool:
        """Whether the next iteration needs a replacement first: there is no room for another direction."""

    @property
    def correction(self) -> Array:
        """y, ``[..., width]``, of the inner precision; asked for at the end of a cycle."""

    def replace(self, residual: Array, target: Vector, kept: NDArray[np.intp] | None) -> None:
        """Start again from y = 0 with this true residual ``[..., width]``, keeping the search directions.

        residual: may be overwritten. target: norms to reach. kept: positions of the columns in the block
        before, None if they are the same.
        """

    lag: int
    """Iterations to start ahead of the estimate that is asked for: 0, or 1 to keep a device busy."""

    def start(self) -> None:
        """Begin an iteration; on a device it returns before the iteration is done."""

    def estimate(self) -> Vector:
        """Residual norms ``[width]`` of the oldest iteration not yet asked for. Raises BreakdownError."""

    @property
    def width(self) -> int:
        """Columns that the next step applies A to."""
