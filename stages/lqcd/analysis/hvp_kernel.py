"""The kernel of the time-momentum representation of the muon's hadronic vacuum polarisation.

    a_mu = (alpha/pi)^2 int_0^inf dt K~(t) G(t),
    K~(t) = 8 pi^2 int_0^inf (dw/w) f(w^2) [w^2 t^2 - 4 sin^2(w t/2)]          (arXiv:1107.4388)

With w = 2 m_mu sinh(theta), f simplifies to exp(-4 theta) and nothing cancels: for x = m_mu t

    m_mu^2 K~ = 8 pi^2 x^2 int_0^inf dtheta exp(-4 theta) {1 - [sin z / z]^2},   z = x sinh(theta).

Above x = 20 it is 2 pi^2 [x^2 - 2 pi x + 8 ln x + 8 gamma_E - 2 + 4/x^2] up to exp(-2 x).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import scipy.special as special
from numpy.typing import ArrayLike, NDArray

from stages.base.errors import InputError

HBARC = 0.1973269804
"""GeV fm."""
CLOSED_FORM_FROM = 0.75
"""m_mu t above which the closed form keeps 12 digits; it loses 72 / x^6 of the precision."""
ASYMPTOTIC_FROM = 20.0
"""m_mu t above which exp(-2 m_mu t) is below the rounding."""
OSCILLATING_TO = 64 * np.pi
"""z beyond which the oscillation of the integrand is averaged: at a zero of sin(2 z)."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Muon:
    """The constants of a_mu: mass in GeV (CODATA 2018) and 1/alpha (CODATA 2018, Thomson limit).

    Raises InputError for a number that is not positive.
    """

    mass: float = 0.1056583755
    inverse_alpha: float = 137.035999084

    def __post_init__(self) -> None:
        for name, value in (("mass", self.mass), ("inverse_alpha", self.inverse_alpha)):
            if not (np.isfinite(value) and value > 0):
                raise InputError(f"the muon's {name} must be a positive number, got {value!r}")

    @property
    def prefactor(self) -> float:
        """(alpha/pi)^2."""
        return float((1 / (self.inverse_alpha * np.pi)) ** 2)

    def phase(self, t_fm: ArrayLike) -> Array:
        """m_mu t of times in fm."""
        return np.asarray(t_fm, float) * (self.mass / HBARC)


def muon_kernel(t_fm: ArrayLike, muon: Muon | None = None) -> Array:
    """K~(t) in GeV^-2, from its integral, to 13 digits (arXiv:1107.4388).

    t_fm: times in fm, any shape; the result has it. K~(0) = 0. Raises InputError for negative times.
    """
    muon = muon or Muon()
    return kernel(muon.phase(t_fm)) / muon.mass**2


def kernel(x: ArrayLike) -> Array:
    """m_mu^2 K~ as a function of x = m_mu t >= 0, float64 of any shape; pi^2 x^4 / 9 for small x."""
    phase = _not_negative(x)
    large = np.maximum(phase, ASYMPTOTIC_FROM)
    smooth = large**2 + 8 * np.log(large) + 8 * np.euler_gamma - 2 + 4 / large**2
    integral = 4 * phase**2 * _average(phase, _grid().of_kernel)
    return 2 * np.pi**2 * np.where(phase > ASYMPTOTIC_FROM, smooth - 2 * np.pi * large, integral)


def kernel_slope(x: ArrayLike) -> Array:
    """The derivative of `kernel`: 16 pi^2 x int dtheta exp(-4 theta) [1 - sin(2 z) / (2 z)]."""
    phase = _not_negative(x)
    large = np.maximum(phase, ASYMPTOTIC_FROM)
    asymptotic = 2 * large - 2 * np.pi + 8 / large - 8 / large**3
    integral = 8 * phase * _average(phase, _grid().of_slope)
    return 2 * np.pi**2 * np.where(phase > ASYMPTOTIC_FROM, asymptotic, integral)


def kernel_closed_form(x: ArrayLike) -> Array:
    """m_mu^2 K~ of x = m_mu t in Bessel K and modified Struve functions (arXiv:2004.03935, eq. 2.10).

    2 pi^2 [x^2 + 4/x^2 + 8 ln x + 8 gamma_E - 2 - 8 K_1(y)/x - 2 y K_1(y)
            - pi y^2 (K_0(y) L_{-1}(y) + K_1(y) L_0(y))],  y = 2 x,
    which is arXiv:1705.01775, appendix B, with its Meijer function written out.
    Raises InputError below `CLOSED_FORM_FROM`, where it cancels, and above 300, where L_0 overflows.
    """
    phase = _not_negative(x)
    if phase.size and not (phase.min() >= CLOSED_FORM_FROM and phase.max() <= 300):
        raise InputError(
            f"the closed form of the kernel is for m_mu t from {CLOSED_FORM_FROM} to 300, got "
            f"{phase.min():.4g} to {phase.max():.4g}: take `kernel`, its integral"
        )
    y = 2 * phase
    k0, k1 = special.k0(y), special.k1(y)
    integral = k0 * special.modstruve(-1, y) + k1 * special.modstruve(0, y)
    smooth = phase**2 + 4 / phase**2 + 8 * np.log(phase) + 8 * np.euler_gamma - 2
    return 2 * np.pi**2 * (smooth - 8 * k1 / phase - 2 * y * k1 - np.pi * y**2 * integral)


def _not_negative(x: ArrayLike) -> Array:
    phase = np.asarray(x, float)
    if not (np.isfinite(phase) & (phase >= 0)).all():
        raise InputError(f"the kernel is for finite times t >= 0, got {phase[~(phase >= 0)].ravel()[:3]}")
    return phase


def _average(x: Array, function: Array) -> Array:
    """int dtheta exp(-4 theta) function(z) over the grid in z, dtheta = dz / sqrt(z^2 + x^2)."""
    flat = np.minimum(x, ASYMPTOTIC_FROM).reshape(-1, 1)
    root = np.hypot(_grid().z, flat)
    values = (flat / (_grid().z + root)) ** 4 / root
    return (values @ function).reshape(x.shape)


class _Grid(NamedTuple):
    """Gauss-Legendre nodes z, and weights times the functions of z that the kernel and its slope have."""

    z: Array
    of_kernel: Array
    of_slope: Array


@cache
def _grid() -> _Grid:
    uniform = np.linspace(1, OSCILLATING_TO, 101)
    edges = np.concatenate([[0], 2.0 ** np.arange(-30, 0), uniform, uniform[-1] * 2.0 ** np.arange(1, 16)])
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = np.diff(edges)[:, None] / 2
    z, weight = (edges[:-1, None] + half * (1 + nodes)).ravel(), (half * weights).ravel()
    inner = z < OSCILLATING_TO
    of_kernel = np.where(inner, 1 - np.sinc(z / np.pi) ** 2, 1 - 1 / (2 * z**2))
    of_slope = np.where(inner, 1 - np.sinc(2 * z / np.pi), 1.0)
    k = np.arange(1, 15)  # both as series where they cancel
    small = 4.0**k * (-1.0) ** (k + 1) / special.factorial(2 * k + 1) * np.minimum(z, 1)[:, None] ** (2 * k)
    of_slope = np.where(z < 1, small.sum(axis=1), of_slope)
    of_kernel = np.where(z < 1, (small / (k + 1)).sum(axis=1), of_kernel)
    return _Grid(z, weight * of_kernel, weight * of_slope)
