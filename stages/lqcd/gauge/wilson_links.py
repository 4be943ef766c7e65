"""Links and clover matrices of Wilson-type operators, from the thin links of a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stages.base.errors import InputError, check_number
from stages.lqcd.gauge.clover import clover_term
from stages.lqcd.gauge.origin import Origin
from stages.lqcd.gauge.phases import parse_boundary, with_boundary
from stages.lqcd.gauge.reunitarise import to_su3
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import Lattice, T

NO_TWIST = (0.0, 0.0, 0.0, 0.0)
"""No phases on links."""


@dataclass(frozen=True)
class Anisotropy:
    """xi0: the bare gauge anisotropy, positive; nu: the bare speed of light, positive (Chroma's names)."""

    xi0: float = 1.0
    nu: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("xi0", self.xi0), ("nu", self.nu)):
            if not value > 0:
                raise InputError(f"{name} of an anisotropic Wilson operator must be positive, got {value}")

    @property
    def weights(self) -> tuple[float, float, float, float]:
        """Weights w_mu of hops: nu / xi0 in space, 1 in time."""
        return (self.nu / self.xi0,) * 3 + (1.0,)


@dataclass(frozen=True, eq=False)
class WilsonLinks:
    """Links U_mu(x) with boundary conditions, complex128 ``[mu, parity, site, 3, 3]``, not weighted by w_mu.

    csw: the coefficients c_{mu nu} of planes without t and with it, or None where there is no clover term.
    The term takes twice the room of the links: it is made of them when it is wanted.
    """

    links: Array
    csw: tuple[float, float] | None
    lattice: Lattice
    boundary: tuple[str, str, str, str]
    anisotropy: Anisotropy
    deviation: float
    """Largest element change when the configuration was reunitarised to SU(3)."""

    def clover(self, parity: int) -> Array:
        """C(x) at the sites of `parity`, Hermitian ``[site, chirality, 6, 6]`` (`stages.lqcd.gauge.clover`).

        Raises InputError where there is no clover term.
        """
        if self.csw is None:
            raise InputError("this Wilson operator has no clover term: its csw is 0")
        return clover_term(self.links, self.lattice, parity, *self.csw)


def wilson_links(
    links: Array,
    lattice: Lattice,
    *,
    boundary: str | Sequence[str],
    csw: float | tuple[float, float] = 0.0,
    anisotropy: Anisotropy | None = None,
    theta: Sequence[float] = NO_TWIST,
    backend: str | None = None,
) -> WilsonLinks:
    """Links and clover matrices of M for thin or smeared links ``[mu, parity, site, 3, 3]`` without signs.

    boundary: see `parse_boundary`; 'dirichlet' in t sets the links that leave the last slice to zero.
    csw: the clover coefficient, or (csw_r, csw_t) of the spatial and temporal planes, as in Chroma:
    c_space = csw_r / xi0, c_time = csw_t. theta: phases exp(i pi theta_mu / L_mu) of all links of each
    direction, beside the signs. backend: where the result is wanted, 'cpu' or 'cuda'; where `links` lie
    unless given. Raises InputError.
    """
    shape = (4, 2, lattice.half_volume, 3, 3)
    if links.shape != shape:
        raise InputError(f"links on {lattice} must have shape {shape}, got {links.shape}")
    if np.shape(theta) != (4,):
        raise InputError(f"theta must be four numbers, of x, y, z and t, got {theta!r}")
    for angle in theta:
        check_number("theta", angle)
    anisotropy = anisotropy or Anisotropy()
    there = Origin(links, backend).fetched()
    words = ("periodic",) * 3 + (boundary,) if isinstance(boundary, str) else tuple(boundary)
    dirichlet = len(words) == 4 and words[T] == "dirichlet"
    last = there[T, :, -lattice.sites_per_slice :]
    if dirichlet and not last.any():  # of a field with an open boundary, as files have it
        for row in range(3):
            last[..., row, row] = 1
    su3, deviation = to_su3(there, out=there)
    signs = parse_boundary((*words[:T], "periodic") if dirichlet else words)
    signed = with_boundary(su3, lattice, signs, out=su3)
    if dirichlet:
        for parity in range(2):
            signed[T, parity, -lattice.sites_per_slice :] = 0
    for mu, (angle, extent) in enumerate(zip(theta, lattice.extents, strict=True)):
        if angle:
            signed[mu] *= np.exp(1j * np.pi * angle / extent)
    spatial, temporal = csw if isinstance(csw, tuple) else (csw, csw)
    coefficients = (spatial / anisotropy.xi0, temporal) if spatial or temporal else None
    return WilsonLinks(signed, coefficients, lattice, words, anisotropy, deviation)  # type: ignore[arg-type]
