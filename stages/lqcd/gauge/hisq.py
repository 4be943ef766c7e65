"""The links of staggered operators: highly improved (HISQ), asqtad and naive, as MILC defines them.

Order of construction: thin links reunitarised to SU(3), boundary signs, smearing, staggered phases last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stages.errors import InputError
from stages.lqcd.gauge.fat_links import Paths, fat_links, long_links
from stages.lqcd.gauge.phases import Boundary, parse_boundary, with_boundary, with_phases
from stages.lqcd.gauge.reunitarise import to_su3, to_u3
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import Lattice

DEVICE_LINK_FIELDS = {"double": 12.6, "double-single": 16.9}
"""Gauge fields that a GPU's pool holds when HISQ links have been made and packed for solves of a precision;
measured at 16^4 and 24^4. Naive links take less than their solves."""


@dataclass(frozen=True)
class StaggeredLinks:
    """Links of a staggered operator, complex128 ``[mu, parity, site, 3, 3]``, with boundary signs and phases.

    D psi(x) = sum_mu [ fat_mu(x) psi(x+mu) - fat_mu(x-mu)^dag psi(x-mu)
                        + long_mu(x) psi(x+3mu) - long_mu(x-3mu)^dag psi(x-3mu) ],   M = 2 m + D.
    """

    fat: Array
    long: Array | None
    """None: the operator has no three-hop term."""
    thin: Array
    """The unsmeared, reunitarised links (of the one-link current)."""
    lattice: Lattice
    boundary: Boundary
    deviation: float
    """Largest element change when the configuration was reunitarised to SU(3)."""
    u3_fallbacks: int = 0
    """HISQ: how many links were projected to U(3) by their singular values, det V^dag V being near 0."""
    smeared: Array | None = None
    """HISQ: W, the links smeared once and projected to U(3)."""


def hisq_links(
    links: Array,
    lattice: Lattice,
    *,
    boundary: str | Sequence[str],
    naik_epsilon: float,
) -> StaggeredLinks:
    """HISQ links (arXiv:hep-lat/0610092; coefficients and normalisation of MILC, arXiv:1004.0342) for u0 = 1.

        V = U/8 + S3/16 + S5/64 + S7/384,   W = V (V^dag V)^(-1/2) in U(3),
        fat = (1 + eps/8) W + S3/16 + S5/64 + S7/384 - SL/8 of W,   long = -(1 + eps)/24 W W W.

    links: thin links of a configuration, ``[mu, parity, site, 3, 3]``, without signs; boundary: see
    `parse_boundary`; naik_epsilon: eps, an input for each mass (0 for light quarks). Raises InputError.
    """
    thin, deviation, words = _prepared(links, lattice, boundary)
    level_one = fat_links(thin, lattice, Paths(1 / 8, 1 / 16, 1 / 64, 1 / 384))
    w, fallbacks = to_u3(level_one, out=level_one)
    asq = Paths(1 + naik_epsilon / 8, 1 / 16, 1 / 64, 1 / 384, lepage=-1 / 8)
    fat = fat_links(w, lattice, asq)
    long = long_links(w, lattice, -(1 + naik_epsilon) / 24)
    phased = _phased(fat, long, thin, lattice, words, deviation, fallbacks)
    return replace(phased, smeared=with_phases(w, lattice, out=w))


def asqtad_links(
    links: Array,
    lattice: Lattice,
    *,
    boundary: str | Sequence[str],
    u0: float,
) -> StaggeredLinks:
    """Asqtad links (arXiv:hep-lat/9903032) with tadpole factor u0; arguments as for `hisq_links`.

    fat = 5/8 U + S3/(16 u0^2) + S5/(64 u0^4) + S7/(384 u0^6) - SL/(16 u0^4),   long = -UUU/(24 u0^2).
    """
    if not u0 > 0:
        raise InputError(f"u0 must be positive (the fourth root of the mean plaquette), got {u0}")
    thin, deviation, words = _prepared(links, lattice, boundary)
    paths = Paths(5 / 8, 1 / (16 * u0**2), 1 / (64 * u0**4), 1 / (384 * u0**6), lepage=-1 / (16 * u0**4))
    fat = fat_links(thin, lattice, paths)
    long = long_links(thin, lattice, -1 / (24 * u0**2))
    return _phased(fat, long, thin, lattice, words, deviation)


def naive_links(links: Array, lattice: Lattice, *, boundary: str | Sequence[str]) -> StaggeredLinks:
    """Links of the unimproved operator: fat = thin = U, no long links; arguments as for `hisq_links`."""
    thin, deviation, words = _prepared(links, lattice, boundary)
    with_phases(thin, lattice, out=thin)
    return StaggeredLinks(thin, None, thin, lattice, words, deviation)


def _prepared(links: Array, lattice: Lattice, boundary: str | Sequence[str]) -> tuple[Array, float, Boundary]:
    """(links in SU(3) with the boundary signs, deviation from SU(3), boundary in x, y, z, t)."""
    shape = (4, 2, lattice.half_volume, 3, 3)
    if links.shape != shape:
        raise InputError(f"links on {lattice} must have shape {shape}, got {links.shape}")
    words = parse_boundary(boundary)
    thin, deviation = to_su3(links.astype(complex, copy=False))
    return with_boundary(thin, lattice, words, out=thin), deviation, words


def _phased(
    fat: Array,
    long: Array,
    thin: Array,
    lattice: Lattice,
    boundary: Boundary,
    deviation: float,
    fallbacks: int = 0,
) -> StaggeredLinks:
    for field in (fat, long, thin):
        with_phases(field, lattice, out=field)
    return StaggeredLinks(fat, long, thin, lattice, boundary, deviation, fallbacks)
