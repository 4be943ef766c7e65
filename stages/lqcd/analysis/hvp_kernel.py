"""The kernel of the muon's hadronic vacuum polarisation, time-momentum representation (arXiv:1107.4388).

    a_mu = (alpha/pi)^2 int_0^inf dt K~(t) G(t),
    K~(t) = 8 pi^2 int_0^inf (dw/w) f(w^2) [w^2 t^2 - 4 sin^2(w t/2)]

With w = 2 m_mu sinh(theta), f becomes exp(-4 theta) and nothing cancels: for x = m_mu t, z = x sinh(theta)

    m_mu^2 K~ = 8 pi^2 x^2 int_0^inf dtheta exp(-4 theta) [1 - (sin z / z)^2].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.special as special
from numpy.typing import ArrayLike, NDArray

from stages.base.errors import InputError

HBARC = 0.1973269804
"""GeV fm."""
ASYMPTOTIC_FROM = 20.0
"""m_mu t above which exp(-2 m_mu t) is below the rounding."""
OSCILLATING_TO = 64 * np.pi
"""z beyond which the oscillation of the integrand is averaged: at a zero of sin(2 z)."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Muon:
    """The constants of a_mu: mass in GeV and 1 / alpha (both CODATA 2018), positive or InputError."""

    mass: float = 0.1056583755
    inverse_alpha: float = 137.035999084

    def __post_init__(self) -> None:
        if not (0 < self.mass < np.inf and 0 < self.inverse_alpha < np.inf):
            raise InputError(f"mass and 1/alpha must be positive, got {self.mass!r}, {self.inverse_alpha!r}")


def muon_kernel(t_fm: ArrayLike, muon: Muon | None = None) -> Array:
    """K~(t) in GeV^-2 of times >= 0 in fm, any shape, from its integral, to 13 digits (arXiv:1107.4388)."""
    muon = muon or Muon()
    return kernel(np.asarray(t_fm, float) * muon.mass / HBARC) / muon.mass**2


def kernel(x: ArrayLike) -> Array:
    """m_mu^2 K~ as a function of x = m_mu t >= 0, any shape; pi^2 x^4 / 9 for small x.

    Above x = 20: 2 pi^2 [x^2 - 2 pi x + 8 ln x + 8 gamma_E - 2 + 4/x^2]. Raises InputError for x < 0.
    """
    phase, large = _phases(x)
    asymptotic = large**2 - 2 * np.pi * large + 8 * np.log(large) + 8 * np.euler_gamma - 2 + 4 / large**2
    integral = 4 * phase**2 * _average(phase, _grid()[1])
    return 2 * np.pi**2 * np.where(phase > ASYMPTOTIC_FROM, asymptotic, integral)


def kernel_slope(x: ArrayLike) -> Array:
    """The derivative of `kernel`: 16 pi^2 x int dtheta exp(-4 theta) [1 - sin(2 z) / (2 z)]."""
    phase, large = _phases(x)
    asymptotic = 2 * large - 2 * np.pi + 8 / large - 8 / large**3
    integral = 8 * phase * _average(phase, _grid()[2])
    return 2 * np.pi**2 * np.where(phase > ASYMPTOTIC_FROM, asymptotic, integral)


def _phases(x: ArrayLike) -> tuple[Array, Array]:
    phase = np.asarray(x, float)
    if not ((phase >= 0) & (phase < np.inf)).all():
        raise InputError(f"the kernel is for finite times t >= 0, got {phase.min()} to {phase.max()}")
    return phase, np.maximum(phase, ASYMPTOTIC_FROM)


def _average(x: Array, function: Array) -> Array:
    """The integral over theta of exp(-4 theta) function(z), with dtheta = dz / sqrt(z^2 + x^2)."""
    z, flat = _grid()[0], np.minimum(x, ASYMPTOTIC_FROM).reshape(-1, 1)
    values = []
    for part in np.array_split(flat, 1 + len(flat) // 1000):  # a part takes 20 MB
        root = np.hypot(z, part)
        values.append((part / (z + root)) ** 4 / root @ function)
    return np.concatenate(values).reshape(x.shape)


@cache
def _grid() -> tuple[Array, Array, Array]:
    """Gauss-Legendre nodes z, and weights times the functions of z that the kernel and its slope have."""
    uniform = np.linspace(1, OSCILLATING_TO, 101)
    edges = np.concatenate([[0], 2.0 ** np.arange(-30, 0), uniform, uniform[-1] * 2.0 ** np.arange(1, 16)])
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = np.diff(edges)[:, None] / 2
    z, weight = (edges[:-1, None] + half * (1 + nodes)).ravel(), (half * weights).ravel()
    inner = z < OSCILLATING_TO
    of_kernel = np.where(inner, 1 - np.sinc(z / np.pi) ** 2, 1 - 1 / (2 * z**2))
    of_slope = np.where(inner, 1 - np.sinc(2 * z / np.pi), 1.0)
    k = np.arange(1, 15)  # both as series where they cancel
    series = 4.0**k * (-1.0) ** (k + 1) / special.factorial(2 * k + 1) * np.minimum(z, 1)[:, None] ** (2 * k)
    of_kernel = np.where(z < 1, (series / (k + 1)).sum(axis=1), of_kernel)
    return z, weight * of_kernel, weight * np.where(z < 1, series.sum(axis=1), of_slope)
