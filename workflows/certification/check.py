"""One check of a certificate: what was compared, by how much it differs, and how much it may."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.lqcd.kernels.dispatch import Array

SINGLE, DOUBLE = np.dtype(np.complex64), np.dtype(np.complex128)


class Status(StrEnum):
    """End of a check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Check:
    """A check. deviation, limit: relative to the size of what is compared, but for counts of wrong bits."""

    name: str
    compares: str
    status: Status
    deviation: float | None = None
    limit: float | None = None
    reason: str = ""
    """Why it was skipped, or failed otherwise than by its deviation."""


@dataclass(frozen=True)
class Device:
    """Place of the checks, and what is wanted: a backend, the library of its arrays, the long form."""

    backend: str
    xp: ModuleType
    full: bool = False
    data: Path | None = None
    """Folder of external reference data."""

    def array(self, values: NDArray, dtype: DTypeLike | None = None) -> Array:
        """A host's array there, in a precision."""
        return self.xp.asarray(values if dtype is None else values.astype(dtype))

    def widths(self, quick: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
        """Numbers of right-hand sides."""
        return (*quick, *more) if self.full else quick


def measured(name: str, compares: str, deviation: float, limit: float) -> Check:
    """A check by its figure; one that is no number fails."""
    passed = math.isfinite(deviation) and deviation <= limit
    return Check(name, compares, Status.PASSED if passed else Status.FAILED, float(deviation), limit)


def skipped(name: str, compares: str, reason: str) -> Check:
    """A check that could not be made."""
    return Check(name, compares, Status.SKIPPED, reason=reason)


def rounding(dtype: DTypeLike) -> float:
    """Most that rounding may change in a sum of some hundred terms, relative to the largest."""
    return 5e-6 if np.dtype(dtype) == SINGLE else 1e-13


@contextmanager
def caught(name: str, compares: str, checks: list[Check]) -> Iterator[None]:
    """A block whose error is a failed check: a certificate says all that is wrong, not the first alone."""
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        checks.append(Check(name, compares, Status.FAILED, reason=reason))
