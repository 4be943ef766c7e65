"""a_mu as a sum over time slices, and its windows.

    a_mu = (alpha/pi)^2 sum_n c_n [K~(n a) / a^2] Theta(n a) G(n),   G(n) = a^3 G(n a) dimensionless,

the sum over the correlator itself: [G(n-1) + 2 G(n) + G(n+1)] / 4 has no oscillating states, but multiplies
each other state by (1 + cosh E) / 2 and makes a_mu several per cent too large.
All results are in 1e-10; they are linear in G, so that they pass through resampling as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stages.base.errors import InputError
from stages.lqcd.analysis.hvp_kernel import HBARC, Muon, kernel, kernel_slope
from stages.lqcd.analysis.scale import Scale

UNIT = 1e-10

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Window:
    """Theta(t, start) - Theta(t, stop), Theta(t, t') = [1 + tanh((t - t') / width)] / 2; times in fm.

    None: no edge on that side. arXiv:1801.07224.
    """

    name: str
    start: float | None = None
    stop: float | None = None
    width: float = 0.15

    def __post_init__(self) -> None:
        if not self.width > 0:
            raise InputError(f"window {self.name}: its width must be positive, got {self.width} fm")
        if self.start is not None and self.stop is not None and not self.start < self.stop:
            raise InputError(f"window {self.name}: it starts at {self.start} and stops at {self.stop} fm")

    def at(self, t_fm: ArrayLike) -> Array:
        """Its values at times in fm, of their shape."""
        t = np.asarray(t_fm, float)
        return self._edge(t, self.start, 1.0) - self._edge(t, self.stop, 0.0)

    def slope(self, t_fm: ArrayLike) -> Array:
        """Its derivative with respect to t, per fm."""
        t = np.asarray(t_fm, float)
        edges = [(sign, edge) for sign, edge in ((1, self.start), (-1, self.stop)) if edge is not None]
        slopes = [sign / np.cosh((t - edge) / self.width) ** 2 / (2 * self.width) for sign, edge in edges]
        return np.zeros_like(t) + sum(slopes)

    def _edge(self, t: Array, edge: float | None, absent: float) -> Array:
        if edge is None:
            return np.full_like(t, absent)
        return (1 + np.tanh((t - edge) / self.width)) / 2


TOTAL = Window("total")
WINDOWS = {
    window.name: window
    for window in (
        TOTAL,
        Window("SD", None, 0.4),
        Window("W", 0.4, 1.0),
        Window("LD", 1.0, None),
        Window("W2", 1.5, 1.9),
    )
}
"""The windows of arXiv:1801.07224 (SD, W, LD: they add up to the total) and W2 of arXiv:2204.12256."""


@dataclass(frozen=True)
class HvpSum:
    """The sum over slices n = 0 ... `last`, for correlators in lattice units.

    scale: the lattice spacing. window: any. muon: its mass and alpha.
    middle: c_n at n = N/2 of an even N, 1/2 (the backward half belongs to the other side) or 1; c_n = 1
    elsewhere. last: the last slice, N/2 by default.
    """

    scale: Scale
    window: Window = TOTAL
    muon: Muon = field(default_factory=Muon)
    middle: Literal[0.5, 1] = 0.5
    last: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.scale, Scale):
            raise InputError(
                f"a scale with its error is needed, Scale(a_fm=0.1222, error=0.0003), got {self.scale!r}"
            )
        if self.middle not in (0.5, 1):
            raise InputError(f"the weight of the middle slice is 0.5 or 1, got {self.middle!r}")

    def weights(self, extent: int) -> Array:
        """What G(n) is multiplied with, ``[n]`` for n = 0 ... last, in 1e-10, of N = `extent` slices.

        Raises InputError where the window begins less than 0.3 fm before the last slice.
        """
        t, x, c = self._terms(extent)
        return c * kernel(x) * self.window.at(t)

    def slopes(self, extent: int) -> Array:
        """d weights / d ln a at fixed G(n), ``[n]`` in 1e-10: through a m_mu and the window's edges."""
        t, x, c = self._terms(extent)
        shape = x * kernel_slope(x) - 2 * kernel(x)
        return c * (shape * self.window.at(t) + kernel(x) * t * self.window.slope(t))

    def value(self, correlator: ArrayLike) -> Array:
        """a_mu in 1e-10 of G ``[..., N]`` of the whole period, n and N - n averaged; ``[...]``."""
        return self.slices(correlator) @ self.weights(np.shape(correlator)[-1])

    def partial_sums(self, correlator: ArrayLike) -> Array:
        """The sums up to each n, ``[..., n]`` in 1e-10, of G ``[..., N]``."""
        return np.cumsum(self.slices(correlator) * self.weights(np.shape(correlator)[-1]), axis=-1)

    def scale_slope(self, correlator: ArrayLike) -> Array:
        """d a_mu / d ln a, ``[...]`` in 1e-10, of G ``[..., N]``: times error / a it is the error from a."""
        return self.slices(correlator) @ self.slopes(np.shape(correlator)[-1])

    def last_slice(self, extent: int) -> int:
        """The last n of the sum over a period of N = `extent`."""
        if self.last is None:
            return extent // 2
        if self.last < 1:
            raise InputError(f"the last slice of the sum must be at least 1, got {self.last}")
        return self.last

    def slices(self, correlator: ArrayLike) -> Array:
        """The folded G(n) of the slices that are summed, ``[..., last + 1]``, of G ``[..., N]``."""
        folded, last = fold(correlator), self.last_slice(np.shape(correlator)[-1])
        if last >= folded.shape[-1]:
            raise InputError(
                f"the sum to slice {last} goes beyond the middle, N/2 = {folded.shape[-1] - 1}, where the "
                "backward part of C(t) is: it needs a model of the tail"
            )
        return folded[..., : last + 1]

    def _terms(self, extent: int) -> tuple[Array, Array, Array]:
        """t in fm, m_mu t, and c_n (alpha/pi)^2 / (a m_mu)^2 in 1e-10."""
        last = self.last_slice(extent)
        n = np.arange(last + 1)
        t = n * self.scale.a_fm
        if self.window.start is not None and self.window.start + 2 * self.window.width > t[-1]:
            raise InputError(
                f"window {self.window.name} begins at {self.window.start} fm and rises over "
                f"{2 * self.window.width:g} fm, but the sum ends at {t[-1]:.4g} fm: take a longer lattice "
                "or another window"
            )
        c = np.ones(last + 1)
        if last == extent // 2 and extent % 2 == 0:
            c[-1] = self.middle
        return t, self.muon.phase(t), c * self.muon.prefactor / self.muon.phase(self.scale.a_fm) ** 2 / UNIT


def fold(correlator: ArrayLike) -> Array:
    """[C(n) + C(N - n)] / 2 for n = 0 ... N // 2, ``[..., N // 2 + 1]`` of C ``[..., N]``.

    Each state keeps its backward part, exp(-E (N - n)). Raises InputError for fewer than 4 slices.
    """
    c = np.asarray(correlator, float)
    if not c.ndim or c.shape[-1] < 4:
        raise InputError(f"a correlator is [..., time] with at least 4 slices, got {list(c.shape)}")
    n = np.arange(c.shape[-1] // 2 + 1)
    return (c[..., n] + c[..., -n]) / 2


def time_moments(
    correlator: ArrayLike, powers: Sequence[int] = (4, 6, 8, 10), scale: Scale | None = None
) -> Array:
    """sum_t t^k G(t) over t of both signs, ``[..., power]`` of G ``[..., N]`` (arXiv:1403.1778).

    In lattice units, or in GeV^(2-k) with a scale. The middle slice counts on both sides.
    """
    c = fold(correlator)
    n = np.arange(c.shape[-1], dtype=float)
    k = np.asarray(powers)
    weights = 2 * n[:, None] ** k
    weights[0] /= 2
    unit = 1.0 if scale is None else (scale.a_fm / HBARC) ** (k - 2.0)
    return c @ weights * unit
