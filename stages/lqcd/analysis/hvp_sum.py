"""a_mu as a sum over time slices, in windows.

    a_mu = (alpha/pi)^2 sum_n c_n [K~(n a) / a^2] Theta(n a) G(n),   G(n) = a^3 G(n a) dimensionless.

The sum is over the correlator itself. [G(n-1) + 2 G(n) + G(n+1)] / 4, which has no oscillating states, has
each other state times (1 + cosh E) / 2 and makes a_mu several per cent too large.
Results are in 1e-10 and linear in G, so that samples of a resampling pass through as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from stages.base.errors import InputError, check_whole, suggestion
from stages.lqcd.analysis.hvp_kernel import HBARC, Array, Muon, kernel, kernel_slope
from stages.lqcd.analysis.scale import Scale


@dataclass(frozen=True)
class Window:
    """Theta(t, start) - Theta(t, stop), Theta(t, t') = [1 + tanh((t - t') / width)] / 2; times in fm.

    None is no edge. Source: arXiv:1801.07224.
    """

    name: str
    start: float | None = None
    stop: float | None = None
    width: float = 0.15

    def __post_init__(self) -> None:
        start, stop = self.edges
        if not (self.width > 0 and start < stop):
            raise InputError(f"a window rises before it falls, over a width > 0, got {self}")

    @property
    def edges(self) -> tuple[float, float]:
        """Start and stop, infinite where there is none."""
        return (-inf if self.start is None else self.start, inf if self.stop is None else self.stop)

    def at(self, t_fm: Array) -> Array:
        """Its values, of the shape of the times."""
        rise, fall = (np.tanh((t_fm - edge) / self.width) for edge in self.edges)
        return (rise - fall) / 2

    def slope(self, t_fm: Array) -> Array:
        """Its derivative with respect to t, per fm."""
        rise, fall = (np.cosh((t_fm - edge) / self.width) ** -2 for edge in self.edges)
        return (rise - fall) / (2 * self.width)


TOTAL = Window("total")
WINDOWS = {
    window.name: window
    for window in (
        TOTAL,
        Window("SD", stop=0.4),
        Window("W", 0.4, 1.0),
        Window("LD", 1.0),
        Window("W2", 1.5, 1.9),
    )
}
"""SD, W and LD of arXiv:1801.07224, which add up to the total; W2 of arXiv:2204.12256."""


@dataclass(frozen=True)
class HvpSum:
    """The sum over slices n = 0 ... last of correlators in lattice units.

    scale: the lattice spacing. window: any, or a name of `WINDOWS`. muon: mass and alpha. last: N/2 by
    default; all slices have c_n = 1, but for n = N/2 of an even N, which has `middle`: 1/2 (half of it
    belongs to the backward side) or 1. Raises InputError without a scale, and for an unknown window.
    """

    scale: Scale
    window: Window | str = TOTAL
    muon: Muon = field(default_factory=Muon)
    middle: float = 0.5
    last: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.scale, Scale):
            raise InputError(f"a_mu needs a scale, like Scale(a_fm=0.1222, error=0.0003), got {self.scale!r}")
        if self.middle not in (0.5, 1):
            raise InputError(f"middle is 0.5 or 1, got {self.middle!r}")
        if self.last is not None:
            check_whole("last", self.last, 1)
        if not isinstance(self.window, Window) and str(self.window) not in WINDOWS:
            raise InputError(f"unknown window {self.window!r}{suggestion(self.window, WINDOWS)}")

    @property
    def theta(self) -> Window:
        """The window, looked up."""
        return WINDOWS[self.window] if isinstance(self.window, str) else self.window

    def weights(self, extent: int) -> Array:
        """What G(n) is multiplied with, in 1e-10, ``[n]`` for n = 0 ... last, of N = `extent`.

        Raises InputError where the window begins less than two widths, 0.3 fm, before the last slice.
        """
        t, x, c = self._terms(extent)
        return c * kernel(x) * self.theta.at(t)

    def slopes(self, extent: int) -> Array:
        """The derivative of `weights` by ln a, ``[n]``: through a m_mu and the edges of the window."""
        t, x, c = self._terms(extent)
        moved = x * kernel_slope(x) - 2 * kernel(x)
        return c * (moved * self.theta.at(t) + kernel(x) * t * self.theta.slope(t))

    def slices(self, correlator: ArrayLike) -> Array:
        """G(n) of the slices that are summed, folded, ``[..., n]``, of G ``[..., N]``, the whole period.

        Raises InputError for a sum beyond N/2, where only a model of the tail can go.
        """
        folded = fold(correlator)
        last = self.last_slice(np.shape(correlator)[-1])
        if last >= folded.shape[-1]:
            middle = folded.shape[-1] - 1
            raise InputError(f"the sum goes to slice {last}, beyond N/2 = {middle}: only a bounded tail does")
        return folded[..., : last + 1]

    def value(self, correlator: ArrayLike) -> Array:
        """a_mu in 1e-10, ``[...]``, of G ``[..., N]``."""
        return self.slices(correlator) @ self.weights(np.shape(correlator)[-1])

    def partial_sums(self, correlator: ArrayLike) -> Array:
        """The sums up to each n in 1e-10, ``[..., n]``, of G ``[..., N]``."""
        return np.cumsum(self.slices(correlator) * self.weights(np.shape(correlator)[-1]), axis=-1)

    def last_slice(self, extent: int) -> int:
        """The last n of the sum over a period of N = `extent`."""
        return extent // 2 if self.last is None else self.last

    def _terms(self, extent: int) -> tuple[Array, Array, Array]:
        """Times in fm, m_mu t, and c_n (alpha/pi)^2 / (a m_mu)^2 in 1e-10."""
        n = np.arange(self.last_slice(extent) + 1, dtype=float)
        t, phase = n * self.scale.a_fm, self.scale.a_fm * self.muon.mass / HBARC
        start, rise = self.theta.edges[0], 2 * self.theta.width
        if start + rise > t[-1]:
            ends = f"begins at {start} fm and rises over {rise:g} fm, but the sum ends at {t[-1]:.4g} fm"
            raise InputError(f"window {self.theta.name} {ends}: take a longer lattice or another window")
        weight = np.where((2 * n == extent) & (n == n[-1]), self.middle, 1.0)
        return t, n * phase, weight / (np.pi * self.muon.inverse_alpha * phase) ** 2 * 1e10


def fold(correlator: ArrayLike) -> Array:
    """[C(n) + C(N - n)] / 2, ``[..., N // 2 + 1]``, of C ``[..., N]``; it has the part exp(-E (N - n)), too.

    Raises InputError for fewer than 4 slices.
    """
    c = np.asarray(correlator, float)
    if not c.ndim or c.shape[-1] < 4:
        raise InputError(f"a correlator is [..., time] with at least 4 slices, got {list(c.shape)}")
    n = np.arange(c.shape[-1] // 2 + 1)
    return (c[..., n] + c[..., -n]) / 2


def time_moments(
    correlator: ArrayLike, powers: Sequence[int] = (4, 6, 8, 10), scale: Scale | None = None
) -> Array:
    """The sum of t^k G(t) over t of both signs, ``[..., power]``, of G ``[..., N]`` (arXiv:1403.1778).

    In lattice units, or in GeV^(2 - k) with a scale. The middle slice counts on both sides.
    """
    c = fold(correlator)
    k, n = np.asarray(powers), np.arange(c.shape[-1], dtype=float)[:, None]
    unit = 1.0 if scale is None else (scale.a_fm / HBARC) ** (k - 2.0)
    return c @ (np.where(n > 0, 2, 1) * n**k) * unit
