"""Gaussian smearing of sources on a time slice, as Chroma defines it."""

from __future__ import annotations

from stages.errors import InputError
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.gamma import COLOURS, SPINS
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice, T
from stages.lqcd.spectroscopy.quark_sources import slice_sites


def gaussian_smeared(
    source: Array, links: Array, lattice: Lattice, time: int, width: float, steps: int
) -> Array:
    """Gaussian-smeared copy of a source on one time slice.

    By n = `steps` times chi <- chi + width^2 / (4 n) Laplacian chi.

    source: ``[parity, site, 12, column]``, zero on other slices. links: ``[mu, parity, site, 3, 3]`` without
    boundary signs; the Laplacian is sum_{j = x, y, z} [U_j(x) chi(x+j) + U_j(x-j)^dag chi(x-j)] - 6 chi(x).
    The modes of the Laplacian's eigenvalue -l are damped by 1 - width^2 l / (4 n) at each step; with fewer
    than 1.5 width^2 steps the highest, l = 12, grow instead. Raises InputError.
    """
    if steps < 1 or not width > 0:
        raise InputError(
            f"smearing has a positive width and at least 1 step, got width {width}, {steps} steps"
        )
    factor = width**2 / (4 * steps)
    sites = slice_sites(lattice, time)
    field = source[:, sites]
    for _ in range(steps):
        field = field + factor * _laplacian(field, links[:T, :, sites], lattice, time)
    smeared = source.copy()
    smeared[:, sites] = field
    return smeared


def _laplacian(field: Array, links: Array, lattice: Lattice, time: int) -> Array:
    """Laplacian of a field on a slice ``[parity, site of the slice, 12, column]``."""
    xp, first = array_module(field), time * lattice.sites_per_slice
    moved = -6 * field
    for parity in (EVEN, ODD):
        spinors = field[1 - parity].reshape(lattice.sites_per_slice, SPINS, COLOURS, -1)
        for mu in range(T):
            up, down = (
                xp.asarray(lattice.neighbour(parity, mu, hops)[slice_sites(lattice, time)] - first)
                for hops in (1, -1)
            )
            back = links[mu, 1 - parity][down].conj().swapaxes(-1, -2)
            hop = links[mu, parity][:, None] @ spinors[up] + back[:, None] @ spinors[down]
            moved[parity] += hop.reshape(field[parity].shape)
    return moved
