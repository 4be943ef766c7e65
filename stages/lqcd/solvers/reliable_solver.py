"""Configuration of solvers by reliable updates: when a solve ends, and in what precision it iterates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator

MAX_ITERATIONS = 200_000
"""Limit of a solve unless another is given. Conjugate gradients on HISQ links, |D| < 4.8, take at most
1.2 / m log(5 / (m tolerance)) iterations: 66,000 at m = 0.0005 to 1e-8, 200,000 at m = 0.0002 to 1e-10.
"""


@dataclass(frozen=True)
class ReliableUpdates:
    """Frozen configuration of a solve: when it ends, and in what precision it iterates.

    tolerance: on the true |b - A x| / |b| of every right-hand side. max_iterations: of the whole solve.
    inner: 'single' iterates in complex64 with reliable updates in the precision of b, 'half' with fields in
    about 16 bits, which batched CG can on staggered operators and on the normal equations of even-odd Wilson
    ones, and BiCGstab and GCR on the latter; None iterates in that of b.
    delta: the fall of a residual, from its largest norm after a replacement, that asks for the next in
    mixed precision; None: the method's own.
    """

    tolerance: float = 1e-10
    max_iterations: int = MAX_ITERATIONS
    inner: str | None = None
    delta: float | None = None

    narrows: ClassVar[bool] = False
    """Whether converged columns are to be taken out as soon as a narrower block holds the others."""

    update_at: ClassVar[float] = 0.0
    """Fall of a residual that asks for its next replacement in single precision and in deflated solves."""

    forgets: ClassVar[bool] = False
    """Whether every replacement ends a method's search directions, so that it falls at an even rate."""

    halves: ClassVar[bool] = False
    """Whether the method can iterate in half precision."""

    def endures(self, relative: float, reduction: float, share: float, first: bool) -> bool:
        """True if a correction in a deflation space saves more iterations than its disturbance costs.

        See `stages.lqcd.solvers.space.CorrectionSchedule`.
        """
        return relative <= 1

    def in_half(self, A: LinearOperator) -> LinearOperator:
        """A as a method that iterates in half precision applies it. Raises InputError."""
        raise NotImplementedError

    @property
    def fall(self) -> float:
        """Fall of a residual that asks for its next replacement: `delta`, or the method's own."""
        return self.delta or self.update_at

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 1:
            raise InputError(f"tolerance must lie between 0 and 1, got {self.tolerance}")
        if self.max_iterations < 1:
            raise InputError(f"max_iterations must be at least 1, got {self.max_iterations}")
        if self.inner not in (None, "single", "half"):
            raise InputError(
                f"inner must be 'single', 'half', or None for the precision of b; got {self.inner!r}"
            )
        if self.inner == "half" and not self.halves:
            raise InputError(
                f"inner='half' is for BatchedCG, BiCGstab and GCR: give {type(self).__name__} 'single'"
            )
        if self.delta is not None and not 0 < self.delta < 1:
            raise InputError(f"delta must lie between 0 and 1, got {self.delta}")
