"""Choice of the Chebyshev window, degree and subspace.

The upper end is that of the spectrum. The lower edge lies above as many eigenvalues as a restart keeps:
less, and wanted pairs are not amplified; more, and the filter hardly tells wanted ones from others. The
degree is that at which p grows by exp(GROWTH) from the edge to the lowest eigenvalue. What a run costs
depends on it weakly: on uniformly spaced square roots of eigenvalues, as those of a Dirac operator, the
applications to a given tolerance vary by less than 10 % between half and twice this degree, as long as the
subspace is as large as chosen here. Large blocks take fewer steps in a restart cycle, so that each has to
do more: the degree, and the subspace, grow with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import acosh, ceil, log

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.eigen.chebyshev import ChebyshevFilter
from stages.lqcd.eigen.spectrum import MARGIN, SpectrumEstimate

GROWTH = 1.8
"""exp of this is what a filter amplifies the lowest eigenvalue by, for single vectors on a large system."""
GROWTH_OF_MANY = 8.0
"""The same for systems so small that many of their eigenvectors are wanted: products with the basis take
most of the time there, and a higher degree saves steps, at as many applications of the operator."""
GROWTH_PER_BLOCK = 0.3
MOST_DEGREE = 4000
MOST_GROWTH = 30
"""A degree given by the user amplifies by exp of this at most."""

NARROW = 1e-8
"""Part of the spectrum below the edge: less is as good as none, and the degree is near `MOST_DEGREE`."""

MOST_MOVES = 4

ABOVE = 0.05
"""The edge is put this much higher: it may have fallen on a degenerate eigenvalue."""

KEPT = 0.5
"""Part of the columns beyond the wanted ones that a restart keeps."""


def subspace_size(vectors: int, block: int, dimension: int) -> int:
    """Columns of the basis: twice the wanted ones and six blocks, at most the whole space."""
    size = 2 * vectors + 6 * block
    return dimension if size >= 0.75 * dimension else size


def kept_columns(vectors: int, subspace: int, block: int) -> int:
    """Columns that a restart keeps; what is left is filled by whole blocks, two at least."""
    columns = vectors + int(KEPT * (subspace - vectors))
    steps = max(2, (subspace - columns) // block)
    return subspace - steps * block


@dataclass(frozen=True)
class WindowChoice:
    """The wanted filter: window (low, high) and degree, or None to have them chosen.

    restart_columns: number that a restart keeps; block: width of a block; growth: `GROWTH`, or another one.
    """

    window: tuple[float, float] | None
    degree: int | None
    restart_columns: int
    block: int
    growth: float = GROWTH

    def first(self, spectrum: SpectrumEstimate) -> ChebyshevFilter:
        """The filter to begin with.

        Raises InputError for a window that leaves out the upper end, or a degree that rounding forbids.
        """
        if self.window is None:
            edge = spectrum.lower_edge(self.restart_columns)
            low = edge + ABOVE * (edge - spectrum.lowest)
            return self._filter(low, spectrum.high, spectrum.lowest, refuse=True)
        low, high = self.window
        if high < spectrum.highest:
            raise InputError(
                f"a filter for the window ({low:g}, {high:g}) amplifies eigenvalues above it, and there are "
                f"some up to at least {spectrum.highest:g}: give an upper end of {spectrum.high:g} or no "
                "window"
            )
        return self._filter(low, high, min(spectrum.lowest, low), refuse=True)

    def moved(
        self,
        filter: ChebyshevFilter,
        quotients: NDArray[np.float64],
        ritz: NDArray[np.float64],
        restart_columns: int,
    ) -> ChebyshevFilter | None:
        """A better filter after a restart, or None.

        quotients: Rayleigh quotients of A for the wanted pairs, ascending. ritz: Ritz values of p(A) that are
        not locked, descending; restart_columns: of these, those that a restart keeps.
        """
        lowest, top = float(quotients.min()), float(quotients.max())
        if top > filter.high or ritz[-1] < -1.5:
            y = np.cosh(np.arccosh(np.abs(ritz).max()) / filter.degree)
            reached = max(top, (filter.low + filter.high + y * (filter.high - filter.low)) / 2)
            return self._filter(filter.low, reached + MARGIN * (reached - filter.low), lowest)
        if filter.degree == 1:
            return None
        if ritz[0] <= 1:  # all below low are locked, and they are too few
            return self._filter(top + 0.1 * (filter.high - top), filter.high, lowest)
        edge = float(filter.eigenvalues(ritz[min(restart_columns, len(ritz)) - 1]))
        if self.window is None and filter.low - lowest > 3 * (edge - lowest) and edge > top:
            return self._filter(edge + ABOVE * (edge - lowest), filter.high, lowest)
        return None

    def _filter(self, low: float, high: float, lowest: float, refuse: bool = False) -> ChebyshevFilter:
        low = min(low, lowest + 0.9 * (high - lowest))
        if low - lowest <= NARROW * (high - lowest):
            low = lowest + 1e-3 * (high - lowest)
        rate = acosh((low + high - 2 * lowest) / (high - low))
        if self.degree is None:
            growth = self.growth + GROWTH_PER_BLOCK * log(self.block)
            return ChebyshevFilter(low, high, int(np.clip(ceil(growth / rate), 2, MOST_DEGREE)))
        most = max(1, int(MOST_GROWTH / rate))
        if refuse and self.degree > most:
            raise InputError(
                f"a Chebyshev filter of degree {self.degree} over the window ({low:.3g}, {high:.3g}) "
                f"amplifies the lowest eigenvalue, {lowest:.3g}, by 1e{rate * self.degree / log(10):.0f}, "
                f"and all else is lost to rounding: give a degree of at most {most}, or none"
            )
        return ChebyshevFilter(low, high, min(self.degree, most))
