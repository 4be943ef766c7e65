"""Stout smearing of gauge links (arXiv:hep-lat/0311018)."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral

import numpy as np

from stages.errors import InputError
from stages.lqcd.kernels import staple
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.fields import zeros_like
from stages.lqcd.lattice.geometry import Lattice

ALL_DIRECTIONS, SPATIAL_DIRECTIONS = (0, 1, 2, 3), (0, 1, 2)


def stout_links(
    links: Array,
    lattice: Lattice,
    rho: float,
    steps: int,
    directions: Sequence[int] = ALL_DIRECTIONS,
) -> Array:
    """Links after `steps` of U' = exp(A) U, A the traceless anti-Hermitian part of rho C U^dag.

    C: the sum of the staples of U in the planes of `directions`; links of the other directions stay as they
    are and are in no staple. links: SU(3) ``[mu, parity, site, 3, 3]``, complex128, without boundary signs;
    the result is a new array in SU(3) to rounding. Raises InputError.
    """
    check_smearing(links, lattice, steps)
    smeared = array_module(links).array(links, order="C")
    for _ in range(steps):
        before = smeared.copy()
        for mu in directions:
            staples = zeros_like(smeared[mu])
            for nu in directions:
                if nu != mu:
                    staple.add_staple(staples, before[mu], before[nu], lattice, mu, nu, rho)
            generator = traceless_antihermitian(staples @ _dagger(before[mu]))
            smeared[mu] = exponential(generator) @ before[mu]
    return smeared


def check_smearing(links: Array, lattice: Lattice, steps: int) -> None:
    """Raises InputError for links that cannot be smeared and for an impossible number of steps."""
    if links.shape != (4, 2, lattice.half_volume, 3, 3) or links.dtype != np.complex128:
        raise InputError(
            f"links to smear on {lattice} must be complex128 of shape (4, 2, {lattice.half_volume}, 3, 3), "
            f"got {links.dtype} {links.shape}"
        )
    if not isinstance(steps, Integral) or steps < 0:
        raise InputError(f"the number of smearing steps is an integer, 0 or more, got {steps}")


def traceless_antihermitian(matrices: Array) -> Array:
    """(M - M^dag)/2 without its trace, of matrices ``[..., 3, 3]``."""
    xp = array_module(matrices)
    parts = (matrices - _dagger(matrices)) / 2
    trace = xp.trace(parts, axis1=-2, axis2=-1)
    return parts - trace[..., None, None] / 3 * xp.eye(3)


def exponential(generator: Array) -> Array:
    """exp(A) of traceless anti-Hermitian A = iQ ``[..., 3, 3]``, by equations 15 to 34 of the source.

    exp(iQ) = f0 + f1 Q + f2 Q^2, with f from the invariants c0 = det Q and c1 = tr Q^2 / 2 by way of the
    eigenvalues 2 u, -u + w, -u - w of Q for c0 >= 0; f_j(-c0) = (-1)^j f_j(c0)^*.
    """
    xp = array_module(generator)
    q = -1j * generator
    square = q @ q
    c0 = xp.trace(square @ q, axis1=-2, axis2=-1).real / 3
    c1 = xp.trace(square, axis1=-2, axis2=-1).real / 2
    zero = c1 < 1e-30  # there exp(A) = 1 to rounding; avoids 0 / 0
    c1 = xp.where(zero, 1.0, c1)
    theta = xp.arccos(xp.minimum(1.0, xp.abs(c0) / (2 * (c1 / 3) ** 1.5)))
    u, w = xp.sqrt(c1 / 3) * xp.cos(theta / 3), xp.sqrt(c1) * xp.sin(theta / 3)
    f = _coefficients(u, w)
    sign = xp.where(c0 < 0, -1.0, 1.0)
    f0, f1, f2 = (xp.where(c0 < 0, sign**j * value.conj(), value) for j, value in enumerate(f))
    f0, f1, f2 = (
        xp.where(zero, limit, value)[..., None, None]
        for limit, value in zip((1, 1j, -0.5), (f0, f1, f2), strict=True)
    )
    return f0 * xp.eye(3) + f1 * q + f2 * square


def _coefficients(u: Array, w: Array) -> tuple[Array, Array, Array]:
    """f0, f1, f2 for c0 >= 0: equations 29 to 33."""
    xp = array_module(u)
    double, single = xp.exp(2j * u), xp.exp(-1j * u)
    cosine, xi0 = xp.cos(w), xp.sinc(w / np.pi)
    h0 = (u**2 - w**2) * double + single * (8 * u**2 * cosine + 2j * u * (3 * u**2 + w**2) * xi0)
    h1 = 2 * u * double - single * (2 * u * cosine - 1j * (3 * u**2 - w**2) * xi0)
    h2 = double - single * (cosine + 3j * u * xi0)
    denominator = 9 * u**2 - w**2
    return h0 / denominator, h1 / denominator, h2 / denominator


def _dagger(matrices: Array) -> Array:
    return matrices.conj().swapaxes(-1, -2)
