"""The links of staggered operators: highly improved (HISQ), asqtad and naive, as MILC defines them.

Order of construction: thin links reunitarised to SU(3), boundary signs, smearing, staggered phases last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stages.base.errors import InputError
from stages.lqcd.gauge.fat_links import Paths, fat_links, long_links
from stages.lqcd.gauge.origin import Origin
from stages.lqcd.gauge.phases import Boundary, parse_boundary, with_boundary, with_phases
from stages.lqcd.gauge.reunitarise import to_su3, to_u3
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import Lattice

SMEARING_FIELDS = 3.5
"""Gauge fields of a GPU's pool while links are smeared: two and six fields of one direction."""


@dataclass(frozen=True)
class StaggeredLinks:
    """Links of a staggered operator, complex128 ``[mu, parity, site, 3, 3]``, with boundary signs and phases.

    D psi(x) = sum_mu [ fat_mu(x) psi(x+mu) - fat_mu(x-mu)^dag psi(x-mu)
                        + long_mu(x) psi(x+3mu) - long_mu(x-3mu)^dag psi(x-3mu) ],   M = 2 m + D.

    What D does not read is made of the configuration when it is wanted: `thin` and `smeared`.
    """

    fat: Array
    long: Array | None
    """None: the operator has no three-hop term."""
    origin: Origin
    """The configuration."""
    lattice: Lattice
    boundary: Boundary
    deviation: float
    """Largest element change when the configuration was reunitarised to SU(3)."""
    u3_fallbacks: int = 0
    """HISQ: how many links were projected to U(3) by their singular values, det V^dag V being near 0."""
    unitary: bool = False
    """HISQ: the links are smeared once and projected to U(3) before they are smeared again."""

    def thin(self, parity: int | None = None) -> Array:
        """The unsmeared, reunitarised links, of the one-link current.

        parity: of the sites where they begin; ``[mu, site, 3, 3]`` then.
        """
        thin, _, _ = _prepared(self.origin, self.lattice, self.boundary, parity)
        return with_phases(thin, self.lattice, out=thin, parity=parity)

    def smeared(self) -> Array:
        """HISQ's W, the links smeared once and projected to U(3); only where `unitary`."""
        w, _ = _smeared_once(_prepared(self.origin, self.lattice, self.boundary)[0], self.lattice)
        return with_phases(w, self.lattice, out=w)


def hisq_links(
    links: Array,
    lattice: Lattice,
    *,
    boundary: str | Sequence[str],
    naik_epsilon: float,
    backend: str | None = None,
) -> StaggeredLinks:
    """HISQ links (arXiv:hep-lat/0610092; coefficients and normalisation of MILC, arXiv:1004.0342) for u0 = 1.

        V = U/8 + S3/16 + S5/64 + S7/384,   W = V (V^dag V)^(-1/2) in U(3),
        fat = (1 + eps/8) W + S3/16 + S5/64 + S7/384 - SL/8 of W,   long = -(1 + eps)/24 W W W.

    links: thin links of a configuration, ``[mu, parity, site, 3, 3]``, without signs; boundary: see
    `parse_boundary`; naik_epsilon: eps, an input for each mass (0 for light quarks); backend: where the
    result is wanted, 'cpu' or 'cuda'; where `links` lie unless given. Raises InputError. Memory: three and a
    half fields at most, the result among them.
    """
    origin = Origin(links, backend)
    thin, deviation, words = _prepared(origin, lattice, boundary)
    w, fallbacks = _smeared_once(thin, lattice)
    del thin  # its memory is needed
    fat = fat_links(w, lattice, Paths(1 + naik_epsilon / 8, 1 / 16, 1 / 64, 1 / 384, lepage=-1 / 8))
    long = long_links(w, lattice, -(1 + naik_epsilon) / 24)
    for field in (fat, long):
        with_phases(field, lattice, out=field)
    return StaggeredLinks(fat, long, origin, lattice, words, deviation, fallbacks, unitary=True)


def asqtad_links(
    links: Array,
    lattice: Lattice,
    *,
    boundary: str | Sequence[str],
    u0: float,
    backend: str | None = None,
) -> StaggeredLinks:
    """Asqtad links (arXiv:hep-lat/9903032) with tadpole factor u0; arguments as for `hisq_links`.

    fat = 5/8 U + S3/(16 u0^2) + S5/(64 u0^4) + S7/(384 u0^6) - SL/(16 u0^4),   long = -UUU/(24 u0^2).
    """
    if not u0 > 0:
        raise InputError(f"u0 must be positive (the fourth root of the mean plaquette), got {u0}")
    origin = Origin(links, backend)
    thin, deviation, words = _prepared(origin, lattice, boundary)
    paths = Paths(5 / 8, 1 / (16 * u0**2), 1 / (64 * u0**4), 1 / (384 * u0**6), lepage=-1 / (16 * u0**4))
    fat = fat_links(thin, lattice, paths)
    long = long_links(thin, lattice, -1 / (24 * u0**2))
    for field in (fat, long):
        with_phases(field, lattice, out=field)
    return StaggeredLinks(fat, long, origin, lattice, words, deviation)


def naive_links(
    links: Array, lattice: Lattice, *, boundary: str | Sequence[str], backend: str | None = None
) -> StaggeredLinks:
    """Links of the unimproved operator: fat = thin = U, no long links; arguments as for `hisq_links`."""
    origin = Origin(links, backend)
    thin, deviation, words = _prepared(origin, lattice, boundary)
    with_phases(thin, lattice, out=thin)
    return StaggeredLinks(thin, None, origin, lattice, words, deviation)


def _prepared(
    origin: Origin, lattice: Lattice, boundary: str | Sequence[str], parity: int | None = None
) -> tuple[Array, float, Boundary]:
    """(links in SU(3) with the boundary signs, deviation from SU(3), boundary in x, y, z, t).

    Of one parity where it is given. They are the caller's.
    """
    shape = (4, 2, lattice.half_volume, 3, 3)
    if origin.links.shape != shape:
        raise InputError(f"links on {lattice} must have shape {shape}, got {origin.links.shape}")
    words = parse_boundary(boundary)
    there = origin.fetched(parity)
    thin, deviation = to_su3(there, out=there)
    return with_boundary(thin, lattice, words, thin, parity), deviation, words


def _smeared_once(thin: Array, lattice: Lattice) -> tuple[Array, int]:
    """W of HISQ, without phases, and how many links of it were projected by their singular values."""
    level_one = fat_links(thin, lattice, Paths(1 / 8, 1 / 16, 1 / 64, 1 / 384))
    return to_u3(level_one, out=level_one)
