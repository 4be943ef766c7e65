"""The error budget of a contribution to a_mu: a table, blinded or open."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot, inf, isnan, nan

from stages.base.errors import InputError
from stages.lqcd.analysis.blinding import Blinding
from stages.lqcd.analysis.scale import Measured


@dataclass(frozen=True)
class HvpBudget:
    """A number in 1e-10 with its errors; `print` shows a table.

    parts: values with statistical errors, which are correlated: together they are one of `sources`, the
    independent errors, whose values are 0. corrections: stated inputs. digest: of the blinding, or None.
    """

    quantity: str
    parts: tuple[Measured, ...]
    sources: tuple[Measured, ...]
    corrections: tuple[Measured, ...] = ()
    notes: tuple[str, ...] = ()
    digest: str | None = None

    @property
    def value(self) -> float:
        """Sum of parts and corrections."""
        return sum(row.value for row in (*self.parts, *self.corrections))

    @property
    def error(self) -> float:
        """All sources and corrections in quadrature."""
        return hypot(*(row.error for row in (*self.sources, *self.corrections)))

    @property
    def rows(self) -> dict[str, tuple[float, float]]:
        """Value and error of each row, parts, corrections, sources (without a value: NaN), the total."""
        known = {row.name: (row.value, row.error) for row in (*self.parts, *self.corrections)}
        return {
            **known,
            **{row.name: (nan, row.error) for row in self.sources},
            "total": (self.value, self.error),
        }

    def corrected(self, *corrections: Measured) -> HvpBudget:
        """With corrections in 1e-10 added: finite volume, taste breaking, whatever is stated.

        Raises InputError for a blinded budget: absolute numbers would give the factor away.
        """
        if wrong := [each for each in corrections if not isinstance(each, Measured)]:
            raise InputError(
                f"a correction has an error: Measured(15.0, 4.0, 'finite volume'), got {wrong[0]!r}"
            )
        if corrections and self.digest:
            raise InputError(f"{corrections[0].name} cannot be added to a blinded budget: open it first")
        return replace(self, corrections=(*self.corrections, *corrections))

    def opened(self, key: str) -> HvpBudget:
        """Without the factor. Raises InputError where the key is another one's, or nothing is blinded."""
        if not self.digest:
            raise InputError(f"{self.quantity} is not blinded")
        factor = Blinding.of_digest(key, self.digest).factor
        parts, sources = (
            tuple(Measured(row.value / factor, row.error / factor, row.name) for row in rows)
            for rows in (self.parts, self.sources)
        )
        return replace(self, parts=parts, sources=sources, digest=None)

    def __str__(self) -> str:
        lines = [f"{self.quantity} in 1e-10" + (f", blinded: {self.digest}" if self.digest else "")]
        lines.append(f"{'':28}{'value':>12}{'error':>12}{'of total':>12}")
        for name, (value, error) in self.rows.items():
            share = 100 * error / abs(self.value) if self.value else inf
            shown = "" if isnan(value) else f"{value:.4f}"
            lines.append(f"{name:28}{shown:>12}{error:12.4f}{share:10.3f} %")
        return "\n".join([*lines, *(f"# {note}" for note in self.notes)])
