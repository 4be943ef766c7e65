"""The three-dimensional gauge-covariant Laplacian on all time slices of a lattice at once.

    -Laplacian v(x) = 6 v(x) - H v(x),   H v(x) = sum_{j = x, y, z} [ U_j(x) v(x+j) + U_j(x-j)^dag v(x-j) ]

H connects opposite parities within a slice, so that its eigenvectors come in pairs: (u, +-w) on even and odd
sites with the eigenvalues +-h, where H_eo H_oe u = h^2 u and w = H_oe u / h. The lowest modes of -Laplacian,
6 - h, are those of

    A = 36 - H_eo H_oe = (6 - h)(6 + h)

on the even sites alone: vectors of half the size. For the modes wanted A is near 12 (6 - h) in a spectrum of
width 36, where that of -Laplacian is 12: a Chebyshev filter of the same strength has half the degree.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from stages.base.errors import InputError
from stages.lqcd.dirac.staggered import SquaredDslash, StaggeredHops
from stages.lqcd.kernels import hisq_dslash
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.lattice.geometry import EVEN, Lattice

DIAGONAL = 6.0
"""The diagonal of -Laplacian."""


@dataclass(frozen=True)
class SpatialHop(StaggeredHops):
    """H of links ``[mu, parity, site, 3, 3]`` without boundary signs; fields on one parity: ``[site, 3, N]``.

    dtype: complex64 or complex128. Links in t play no part. Raises InputError.
    """

    links: Array
    lattice: Lattice
    dtype: Any = np.complex128

    name = "a Laplacian"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_links(self.links, self.lattice)

    @property
    def xp(self) -> ModuleType:
        return array_module(self.links)

    def astype(self, dtype: DTypeLike) -> SpatialHop:
        return self if self.dtype == dtype else SpatialHop(self.links, self.lattice, dtype)

    def _packed_into(self, parity: int) -> hisq_dslash.PackedLinks:
        return hisq_dslash.pack_spatial(self.links, self.lattice, parity, self.dtype)


def check_links(links: Array, lattice: Lattice) -> None:
    """Raises InputError unless links have the shape of the lattice's, ``[mu, parity, site, 3, 3]``."""
    shape = (4, 2, lattice.half_volume, 3, 3)
    if links.shape != shape:
        raise InputError(f"links on {lattice} have shape {shape}, got {links.shape}")


def folded_laplacian(hop: SpatialHop) -> SquaredDslash:
    """A = 36 - H_eo H_oe on the even sites, ``[site, 3, N]``: Hermitian, eigenvalues from 0 to 36.

    The rows of a time slice follow each other, and A does not mix slices.
    """
    return SquaredDslash(hop, EVEN, DIAGONAL**2)
