"""Numbers that come from elsewhere, with their errors; the lattice spacing is one of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, isfinite, sqrt

from stages.base.errors import InputError


@dataclass(frozen=True)
class Measured:
    """A number from elsewhere with its error: Z_V, a correction in 1e-10, a scale.

    Two that have the same `name` are one number: their errors add linearly. Raises InputError where the
    value is not finite, or the error is missing or negative.
    """

    value: float
    error: float
    name: str

    def __post_init__(self) -> None:
        for what, number in (("value", self.value), ("error", self.error)):
            if isinstance(number, bool) or not isinstance(number, int | float) or not isfinite(number):
                raise InputError(f"the {what} of {self.name} must be a finite number, got {number!r}")
        if self.error < 0:
            raise InputError(f"the error of {self.name} must not be negative, got {self.error}")


@dataclass(frozen=True)
class Scale:
    """The lattice spacing in fm and its error, which has no default: a scale without error is refused.

    Nothing in lattice units becomes a physical number without it. Raises InputError for a spacing that is
    not positive.
    """

    a_fm: float
    error: float

    def __post_init__(self) -> None:
        Measured(self.a_fm, self.error, "the lattice spacing in fm")
        if self.a_fm <= 0:
            raise InputError(f"the lattice spacing must be positive, got {self.a_fm} fm")

    @classmethod
    def from_w0(cls, w0_over_a: Measured, w0_fm: Measured) -> Scale:
        """a = w0 / (w0/a), errors in quadrature (arXiv:1203.4469)."""
        return cls._from_ratio(w0_over_a, w0_fm, 1.0)

    @classmethod
    def from_t0(cls, t0_over_a2: Measured, sqrt_t0_fm: Measured) -> Scale:
        """a = sqrt(t0) / sqrt(t0/a^2), errors in quadrature (arXiv:1006.4518)."""
        return cls._from_ratio(t0_over_a2, sqrt_t0_fm, 0.5)

    @classmethod
    def _from_ratio(cls, lattice: Measured, physical: Measured, power: float) -> Scale:
        for number in (lattice, physical):
            if number.value <= 0:
                raise InputError(f"{number.name} must be positive, got {number.value}")
        a = physical.value / (lattice.value if power == 1 else sqrt(lattice.value))
        return cls(a, a * hypot(physical.error / physical.value, power * lattice.error / lattice.value))
