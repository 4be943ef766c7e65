"""Settings, limits and reports of block Lanczos, on one system or on many."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import DTypeLike

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator

MOST_BLOCK = 32

SAFETY = 0.5
"""Ritz vectors are good enough at this part of the tolerance: the last rotation mixes close ones."""

TIE = 10
"""Eigenvalues that differ by less than this times what a residual may be are taken as one."""

ROUNDING = 50
"""Rounding units of the largest eigenvalue that residuals stay above."""

Progress = Callable[[int, int, int, float], None]
"""progress(restarts, converged, wanted, largest residual of the wanted pairs), after each restart cycle."""


@dataclass(frozen=True)
class Lanczos:
    """Frozen configuration of a run for the lowest `vectors` eigenpairs of a system.

    block: 1 to 32 columns. tolerance: |A v - lambda v| is at most this times the largest eigenvalue. seed: of
    the random vectors.
    """

    vectors: int
    block: int = 8
    tolerance: float = 1e-10
    max_restarts: int = field(default=200, kw_only=True)
    seed: int = field(default=20260, kw_only=True)

    def __post_init__(self) -> None:
        if self.vectors < 1:
            raise InputError(f"the number of eigenvectors must be at least 1, got {self.vectors}")
        if not 1 <= self.block <= MOST_BLOCK:
            raise InputError(f"the block of Lanczos vectors must be 1 to {MOST_BLOCK}, got {self.block}")
        if not 0 < self.tolerance < 1:
            raise InputError(f"tolerance must lie between 0 and 1, got {self.tolerance}")
        if self.max_restarts < 1:
            raise InputError(f"max_restarts must be at least 1, got {self.max_restarts}")

    def check_operator(self, A: LinearOperator) -> None:
        """Raises InputError for an operator that is not Hermitian or whose rounding hides the tolerance."""
        if not A.hermitian:
            raise InputError(f"Lanczos needs a Hermitian operator, which {type(A).__name__} is not")
        check_reachable(self.tolerance, A.dtype)


def check_reachable(tolerance: float, dtype: DTypeLike) -> None:
    """Raise InputError for a tolerance that vectors of this complex dtype cannot meet.

    In units of the largest eigenvalue.
    """
    least = ROUNDING * float(np.finfo(dtype).eps)
    if tolerance < least:
        single = np.dtype(dtype) == np.complex64
        raise InputError(
            f"residuals in {'single' if single else 'double'} precision stay above about {least:.1g} of the "
            f"largest eigenvalue, got a tolerance of {tolerance:g}: take a larger one"
            + (", or double precision" if single else "")
        )
