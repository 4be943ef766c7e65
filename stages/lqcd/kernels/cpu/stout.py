"""NumPy over all links at once.

exp(iQ) = f0 + f1 Q + f2 Q^2 by equations 15 to 34 of the source, with f from the invariants c0 = det Q and
c1 = tr Q^2 / 2 by way of the eigenvalues 2 u, -u + w, -u - w of Q for c0 >= 0; f_j(-c0) = (-1)^j f_j(c0)^*.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def smeared_links(staples: NDArray, links: NDArray, out: NDArray) -> None:
    generator = _traceless_antihermitian(staples @ _dagger(links))
    out[...] = _exponential(generator) @ links


def _traceless_antihermitian(matrices: NDArray) -> NDArray:
    """(M - M^dag)/2 without its trace."""
    parts = (matrices - _dagger(matrices)) / 2
    trace = np.trace(parts, axis1=-2, axis2=-1)
    return parts - trace[..., None, None] / 3 * np.eye(3)


def _exponential(generator: NDArray) -> NDArray:
    """exp(A) of traceless anti-Hermitian A = iQ ``[..., 3, 3]``."""
    q = -1j * generator
    square = q @ q
    c0 = np.trace(square @ q, axis1=-2, axis2=-1).real / 3
    c1 = np.trace(square, axis1=-2, axis2=-1).real / 2
    zero = c1 < 1e-30  # there exp(A) = 1 to rounding; avoids 0 / 0
    c1 = np.where(zero, 1.0, c1)
    theta = np.arccos(np.minimum(1.0, np.abs(c0) / (2 * (c1 / 3) ** 1.5)))
    u, w = np.sqrt(c1 / 3) * np.cos(theta / 3), np.sqrt(c1) * np.sin(theta / 3)
    f = _coefficients(u, w)
    sign = np.where(c0 < 0, -1.0, 1.0)
    f0, f1, f2 = (np.where(c0 < 0, sign**j * value.conj(), value) for j, value in enumerate(f))
    f0, f1, f2 = (
        np.where(zero, limit, value)[..., None, None]
        for limit, value in zip((1, 1j, -0.5), (f0, f1, f2), strict=True)
    )
    return f0 * np.eye(3) + f1 * q + f2 * square


def _coefficients(u: NDArray, w: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """f0, f1, f2 for c0 >= 0: equations 29 to 33."""
    double, single = np.exp(2j * u), np.exp(-1j * u)
    cosine, xi0 = np.cos(w), np.sinc(w / np.pi)
    h0 = (u**2 - w**2) * double + single * (8 * u**2 * cosine + 2j * u * (3 * u**2 + w**2) * xi0)
    h1 = 2 * u * double - single * (2 * u * cosine - 1j * (3 * u**2 - w**2) * xi0)
    h2 = double - single * (cosine + 3j * u * xi0)
    denominator = 9 * u**2 - w**2
    return h0 / denominator, h1 / denominator, h2 / denominator


def _dagger(matrices: NDArray) -> NDArray:
    return matrices.conj().swapaxes(-1, -2)
