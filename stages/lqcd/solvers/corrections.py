"""Corrections of residuals in a deflation space, and what inexact vectors mix into the residual by them.

With Ritz pairs (q, theta) of B and A = B + shift, a residual r is corrected by y:

    c_q = q^H r,   y = sum_q q c_q / (theta + shift),
    r - A y = r - sum_q q c_q - sum_q R_q c_q / (theta + shift),   R_q = B q - theta q.

The first sum is what deflation takes away. The second, zero for exact vectors, is new: a solver has not seen
it before, and reduces it from its beginning, without what its search directions know. Its norm relative to
|r|, taken as if the R_q were orthogonal, is the *disturbance* by a correction. It grows as the square of the
vectors' error, because c_q is itself what their error has let in since the correction before, and is the
smaller the earlier the next one comes. A solver that would lose more than it gains goes on without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.solvers.recurrence import Vector
from stages.lqcd.solvers.ritz import RitzSpace

DEFLATE_AT, DEFLATE_OFTEN_AT = 1e-2, 0.1
"""Fall of a true residual after which the block is corrected again, with exact and with inexact vectors. For
exact ones the second would double the products with the vectors and save no iteration.
"""

NEARLY_EXACT = 1e-4
"""Disturbance by the first correction up to which vectors count as exact."""


@dataclass(frozen=True)
class Correction:
    """Corrections for A = B + shift in a space of Ritz vectors; residuals: their |B q - theta q| ``[n]``.

    Raises InputError unless A is positive in that space.
    """

    space: RitzSpace
    shift: float
    residuals: NDArray[np.float64]

    def __len__(self) -> int:
        """Vectors of the space."""
        return len(self.residuals)

    def __call__(self, residual: Array, /) -> tuple[Array, Vector]:
        """The correction y ``[*shape, N]`` in the precision of the residual; norms that A y adds ``[N]``."""
        components = self.space.components(residual)
        components *= to_device_like(self._inverse, residual)[:, None]
        added = to_device_like(self.residuals**2, residual) @ (components.real**2 + components.imag**2)
        return self.space.combination(components, residual), np.sqrt(as_numpy(added))

    @cached_property
    def _inverse(self) -> NDArray[np.float64]:
        return self.space.inverse(self.shift)


class Deflate(Protocol):
    """A subspace in which residuals are corrected, as `Correction`."""

    def __len__(self) -> int:
        """Its dimension."""

    def __call__(self, residual: Array, /) -> tuple[Array, Vector]:
        """An approximate y of A y = r for a block of residuals r, and the norms of what A y adds to them."""


@dataclass(frozen=True)
class Disturbance:
    """Norm of what a correction would add to the residual of the worst column of a block.

    relative: to the residual. reduction: to the norm that the solve has to reach. vectors: of the space;
    columns: of the block. first: at the start of a solve, when no search direction is lost.
    """

    relative: float
    reduction: float
    vectors: int
    columns: int
    first: bool


class Corrections:
    """The corrections of one solve: when they are due, and whether they go on.

    endures: whether the method gains by a correction of this disturbance. made: corrections so far.
    """

    def __init__(self, deflate: Deflate | None, endures: Callable[[Disturbance], bool], rhs: int) -> None:
        self._deflate, self._endures = deflate, endures
        self._norms, self._fall = np.full(rhs, np.inf), DEFLATE_AT
        self.made = 0

    @property
    def go_on(self) -> bool:
        """True if there may be another one."""
        return self._deflate is not None

    @property
    def replaced_at(self) -> float:
        """Fall of an estimated residual in one precision that asks for a correction, 0 for exact vectors."""
        return self._fall if self._fall > DEFLATE_AT else 0.0

    def due(self, norms: Vector, columns: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Columns whose norms have fallen far enough since the last correction."""
        return norms < self._fall * self._norms[columns]

    def of(self, residual: Array, norms: Vector, target: Vector) -> Array | None:
        """The correction of a residual whose columns had these norms; None, now and ever, if it disturbs.

        target: norms to reach. Columns of the residual that are done are zero.
        """
        assert self._deflate is not None
        correction, added = self._deflate(residual)
        disturbance = Disturbance(
            _largest_ratio(added, norms),
            _largest_ratio(added, target),
            len(self._deflate),
            norms.size,
            self.made == 0,
        )
        if not self._endures(disturbance):
            self._deflate = None
            return None
        if disturbance.first and disturbance.relative > NEARLY_EXACT:
            self._fall = DEFLATE_OFTEN_AT
        self.made += 1
        return correction

    def enter(self, norms: Vector, columns: NDArray[np.intp]) -> None:
        """Note the norms after a correction."""
        self._norms[columns] = norms


def _largest_ratio(added: Vector, norms: Vector) -> float:
    return float(np.max(added / np.where(norms > 0, norms, 1)))
