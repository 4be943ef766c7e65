"""From measured parts of the vector correlator to a_mu with its error budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import hypot, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.analysis.blinding import Blinded, Blinding
from stages.lqcd.analysis.bounding import Bounds, Tail
from stages.lqcd.analysis.common_resampling import Resampling, common_samples
from stages.lqcd.analysis.hvp_sum import HvpSum
from stages.lqcd.analysis.scale import Measured
from stages.lqcd.analysis.vector_correlator import VectorCorrelator

Array = NDArray[np.float64]


class BudgetRow(NamedTuple):
    """A line of a budget; value and error in 1e-10, the value NaN for a source of error only."""

    name: str
    value: float
    error: float


@dataclass(frozen=True)
class HvpBudget:
    """A number in 1e-10 with its sources of error; `print` shows it as a table.

    parts: value and statistical error of each part; their errors are correlated and enter as `statistical`.
    sources: independent errors (statistical of all parts together, scale, each Z_V, tails), in quadrature.
    corrections: stated inputs, added to the value. digest: of the blinding that all numbers carry, or None.
    """

    quantity: str
    parts: tuple[BudgetRow, ...]
    sources: tuple[BudgetRow, ...]
    corrections: tuple[Measured, ...] = ()
    notes: tuple[str, ...] = ()
    digest: str | None = None

    @property
    def value(self) -> float:
        """Sum of parts and corrections."""
        return sum(row.value for row in self.parts) + sum(each.value for each in self.corrections)

    @property
    def error(self) -> float:
        """All sources and corrections in quadrature."""
        return hypot(*(row.error for row in (*self.sources, *self.corrections)))

    def corrected(self, *corrections: Measured) -> HvpBudget:
        """With corrections in 1e-10 added: finite volume, taste breaking, whatever is stated.

        Raises InputError for a blinded budget: absolute numbers would give the factor away.
        """
        if corrections and self.digest:
            names = ", ".join(each.name for each in corrections)
            raise InputError(f"{names} cannot be added to a blinded budget: remove the blinding first")
        return replace(self, corrections=(*self.corrections, *corrections))

    def blinded(self, blinding: Blinding) -> HvpBudget:
        """With the factor on all its numbers. Raises InputError where there are corrections or a factor."""
        if self.corrections or self.digest:
            raise InputError(f"{self.quantity} has {'a blinding' if self.digest else 'corrections'} already")
        return self._times(lambda x: float(blinding.apply(x).values), blinding.digest)

    def opened(self, key: str) -> HvpBudget:
        """Without the factor. Raises InputError where it has none, or the key is another one's."""
        if self.digest is None:
            raise InputError(f"{self.quantity} is not blinded")
        digest, blinding = self.digest, Blinding.of_digest(key, self.digest)
        return self._times(lambda x: float(blinding.remove(Blinded(np.asarray(x), digest))), None)

    def _times(self, function: Callable[[float], float], digest: str | None) -> HvpBudget:
        parts, sources = (
            tuple(BudgetRow(row.name, function(row.value), function(row.error)) for row in rows)
            for rows in (self.parts, self.sources)
        )
        return replace(self, parts=parts, sources=sources, digest=digest)

    def __str__(self) -> str:
        rows = [f"{self.quantity} in 1e-10" + (f", blinded: {self.digest}" if self.digest else "")]
        rows += [f"{'':24}{'value':>14}{'error':>14}{'relative':>12}"]
        rows += [self._line(*row) for row in self.parts]
        rows += [self._line(each.name, each.value, each.error) for each in self.corrections]
        rows += [self._line(row.name, None, row.error) for row in self.sources]
        rows += [self._line("total", self.value, self.error)]
        return "\n".join([*rows, *(f"# {note}" for note in self.notes)])

    def _line(self, name: str, value: float | None, error: float) -> str:
        text = f"{value:14.4f}" if value is not None else " " * 14
        relative = f"{100 * error / abs(self.value):10.3f} %" if self.value else ""
        return f"{name:24}{text}{error:14.4f}{relative}"


class _Part(NamedTuple):
    """One part of a_mu: bounded slices of G(n), of the mean ``[n]`` and of samples ``[sample, n]``."""

    name: str
    mean: Bounds
    samples: Bounds
    z_v: Measured | None


def a_mu(
    parts: Sequence[VectorCorrelator],
    total: HvpSum,
    *,
    tail: Tail | None = None,
    resampling: Resampling | None = None,
    corrections: Sequence[Measured] = (),
    blinding: Blinding | None = None,
) -> HvpBudget:
    """a_mu in a window, with its error budget, from parts measured on any configurations of an ensemble.

    parts: of different names; all have the same N. total: scale, window, constants and range of the sum.
    tail: bounds of the light and the disconnected part; None sums the data to the end.
    resampling: one for all parts; jackknife by default. corrections: stated, in 1e-10, added to the result.
    blinding: its factor is on all numbers of the result.
    Raises InputError for parts that come twice or count quarks twice, for extents that differ, and for
    corrections to a blinded number.
    """
    extent = _checked(parts)
    resampling = resampling or Resampling()
    common = common_samples({part.part: (part.data, part.labels) for part in parts}, resampling)
    factors = {part.part: part.factor for part in parts}
    mean = {name: factors[name] * value for name, value in common.mean.items()}
    samples = {name: factors[name] * value for name, value in common.samples.items()}
    notes = list(common.notes)
    weights, slopes = total.weights(extent), total.slopes(extent)
    bounded: list[_Part] = []
    for part in parts:
        of_mean, of_samples = (Bounds(*[total.slices(g[part.part])] * 2) if tail is None else None for g in (mean, samples))
        if tail and part.part in ("light", "disconnected"):
            cut = _cut(tail, part.part, mean, samples, weights, resampling)
            of_mean, of_samples = (_bounds(tail, part.part, g, cut, len(weights) - 1) for g in (mean, samples))
            notes.append(f"{part.part}: bounds from slice {cut} on, t_c = {cut * total.scale.a_fm:.3f} fm")
        elif tail:
            of_mean, of_samples = (Bounds(*[total.slices(g[part.part])] * 2) for g in (mean, samples))
        bounded.append(_Part(part.part, of_mean, of_samples, part.z_v))
    return _budget(bounded, total, (weights, slopes), resampling, notes)
