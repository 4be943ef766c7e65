"""Numbers that come from elsewhere, with their errors; the lattice spacing is one of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, isfinite, nan
from numbers import Real

from stages.base.errors import InputError


@dataclass(frozen=True)
class Measured:
    """A number from elsewhere with its error: a Z_V, a correction in 1e-10; equal ones are the same one.

    Raises InputError where value or error is no finite number, or the error is negative.
    """

    value: float
    error: float
    name: str

    def __post_init__(self) -> None:
        for what, number in (("value", self.value), ("error", self.error)):
            if not isinstance(number, Real) or not isfinite(number):
                raise InputError(f"the {what} of {self.name} must be a finite number, got {number!r}")
        if self.error < 0:
            raise InputError(f"the error of {self.name} must not be negative, got {self.error}")


@dataclass(frozen=True)
class Scale:
    """The lattice spacing and its error in fm; nothing in lattice units becomes physical without both.

    Raises InputError for an error that is missing and a spacing that is not positive.
    """

    a_fm: float
    error: float = nan

    def __post_init__(self) -> None:
        Measured(self.a_fm, self.error, "the lattice spacing in fm")
        if self.a_fm <= 0:
            raise InputError(f"the lattice spacing must be positive, got {self.a_fm} fm")

    @classmethod
    def from_ratio(cls, lattice: Measured, physical_fm: Measured) -> Scale:
        """From a length in lattice units and in fm: w0 / (w0/a), or sqrt(t0) / (sqrt(t0)/a).

        Errors in quadrature. w0: arXiv:1203.4469; t0: arXiv:1006.4518.
        """
        if lattice.value <= 0:
            raise InputError(f"{lattice.name} must be positive, got {lattice.value}")
        a = physical_fm.value / lattice.value
        return cls(a, hypot(physical_fm.error, a * lattice.error) / lattice.value)
