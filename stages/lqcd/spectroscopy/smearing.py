"""Gaussian smearing of sources on a time slice, as Chroma defines it."""

from __future__ import annotations

from stages.base.errors import InputError
from stages.lqcd.kernels import slice_products
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, copied
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.quark_sources import slice_sites


def gaussian_smeared(
    source: Array, links: Array, lattice: Lattice, time: int, width: float, steps: int
) -> Array:
    """Gaussian-smeared copy of a source on one time slice.

    By n = `steps` times chi <- chi + width^2 / (4 n) Laplacian chi.

    source: ``[parity, site, 12, column]``, zero on other slices. links: ``[mu, parity, site, 3, 3]`` without
    boundary signs; the Laplacian is sum_{j = x, y, z} [U_j(x) chi(x+j) + U_j(x-j)^dag chi(x-j)] - 6 chi(x).
    The modes of the Laplacian's eigenvalue -l are damped by 1 - width^2 l / (4 n) at each step; with fewer
    than `least_steps` the highest, l = 12, grow instead. Raises InputError.
    """
    if steps < 1 or not width > 0:
        raise InputError(
            f"smearing has a positive width and at least 1 step, got width {width}, {steps} steps"
        )
    factor = width**2 / (4 * steps)
    sites = slice_sites(lattice, time)
    field = source[:, sites]
    for _ in range(steps):
        field = slice_products.laplacian_step(links, field, lattice, time, factor)
    smeared = copied(source)
    assign(smeared[:, sites], field)
    return smeared


def least_steps(width: float) -> float:
    """Least number of steps that damps all modes: |1 - 12 width^2 / (4 n)| <= 1 for n >= 1.5 width^2."""
    return 1.5 * width**2
