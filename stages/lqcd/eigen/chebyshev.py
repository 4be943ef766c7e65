"""A Chebyshev polynomial of an operator: large below a window of the spectrum, at most one inside it.

    p(A) = (-1)^d T_d((2 A - low - high) / (high - low)) = prod_j g (r_j - A),
    g = 2^(1 + (d-1)/d) / (high - low)

It is applied as the product of its linear factors: each is one application of a A + b, which a dslash
computes without another pass over the fields, where the three-term recurrence needs one. The roots r_j come
in Leja's order, in which the intermediate products stay near one, so that rounding hardly grows; in single
precision it is still more than that of the recurrence (`docs/notes/block_lanczos.md`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import LinearOperator, Step, whole_storage
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.solvers.leja import leja_order

MOST_EXPONENT = 200
"""Values end at about exp of this, so that their squares are numbers."""

SUPPRESSION = 5.5
"""q is smaller by about half of exp of this above its edge."""


@dataclass(frozen=True)
class ChebyshevFilter:
    """p of degree d >= 1 for the window (low, high): what lies below low is amplified, most so the lowest.

    damping: degree of a second polynomial q, 0 for none, which is applied after p: near one where p
    amplifies, small from some hundredths of the window on. It takes out what rounding in p left there.
    """

    low: float
    high: float
    degree: int
    damping: int = 0

    def values(self, eigenvalues: NDArray[np.float64]) -> NDArray[np.float64]:
        """p(eigenvalue), times q(eigenvalue) / q(low) if there is one."""
        y = (self.low + self.high - 2 * np.asarray(eigenvalues)) / (self.high - self.low)
        inside = np.cos(self.degree * np.arccos(np.clip(y, -1, 1)))
        outside = np.cosh(np.minimum(self.degree * np.arccosh(np.maximum(np.abs(y), 1)), MOST_EXPONENT))
        p = np.where(np.abs(y) <= 1, inside, np.where(y > 0, 1, (-1) ** self.degree) * outside)
        return p * self._q.values(eigenvalues) / self._q.values(np.array(self.low)) if self.damping else p

    def eigenvalues(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The eigenvalue below low with p = value > 1; low for smaller values. There q counts as one."""
        y = np.cosh(np.arccosh(np.maximum(values, 1)) / self.degree)
        return (self.low + self.high - y * (self.high - self.low)) / 2

    @cached_property
    def roots(self) -> NDArray[np.float64]:
        """r_j in Leja's order, float64 ``[degree]``."""
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        angles = np.pi * (np.arange(self.degree) + 0.5) / self.degree
        return middle + half * leja_order(np.cos(angles))

    @property
    def factors(self) -> list[tuple[float, float]]:
        """Numbers (a, b) of each linear factor a + b A, in their order."""
        factor = 2 ** (1 + (self.degree - 1) / self.degree) / (self.high - self.low)
        second = self._q.roots.tolist() if self.damping else []
        return [(factor * root, -factor) for root in self.roots] + [
            (root / (root - self.low), -1 / (root - self.low)) for root in second
        ]

    @property
    def products(self) -> int:
        """Applications of A that it takes."""
        return self.degree + self.damping

    @property
    def _q(self) -> ChebyshevFilter:
        edge = (SUPPRESSION / (2 * self.damping)) ** 2
        return ChebyshevFilter(self.low + edge * (self.high - self.low), self.high, self.damping)


class RepeatedFilter:
    """Filters of one operator on two blocks that come again and again: a step that is recorded.

    The blocks are known by their identity; both are kept until `clear`, or until another filter is used.
    """

    def __init__(self, A: LinearOperator) -> None:
        self.A = A
        self.clear()

    def clear(self) -> None:
        self._filter: ChebyshevFilter | None = None
        self._steps: dict[tuple[int, int], Callable[[], None]] = {}
        self._blocks: list[Array] = []

    def apply(self, filter_: ChebyshevFilter, x: Array, spare: Array) -> tuple[Array, Array]:
        """p(A) x and the other array: both x and `spare` are overwritten, one of them is the result.

        They are contiguous, with the elements of some fields of A in their order.
        """
        if filter_ != self._filter:
            self.clear()
            self._filter = filter_
        pair = id(x), id(spare)
        if pair not in self._steps:
            self._steps[pair] = self._step(filter_, x, spare)
            self._blocks += x, spare
        self._steps[pair]()
        return (spare, x) if filter_.products % 2 else (x, spare)

    def _step(self, filter_: ChebyshevFilter, x: Array, spare: Array) -> Callable[[], None]:
        source, out = (block.reshape(*self.A.shape, -1) for block in (x, spare))
        storage = whole_storage(self.A)
        calls: list[Step] = []
        for a, b in filter_.factors:
            calls.append(storage.product(source, out, None, a, b))
            source, out = out, source

        def step() -> None:
            for call in calls:
                call()

        return storage.recorded(step)
