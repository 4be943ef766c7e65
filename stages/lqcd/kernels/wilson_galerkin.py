"""P^H A P of the Wilson operator between aggregates, by parts, with no field of products in between.

P is near-null vectors ``[aggregate, chirality, m, k]`` as in `stages.lqcd.kernels.aggregation`, complex64, on
sites ``[aggregate, site]``, all even sites of the lattice numbered first. A GPU rounds the factors of
products to 11 significant bits, and adds in single precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.lattice.geometry import Lattice


@dataclass(frozen=True)
class Aggregated:
    """Sites in aggregates of these extents, int32 ``[aggregate, site]``, and their `places`."""

    sites: Array
    places: Array
    lattice: Lattice
    extents: tuple[int, ...]


def takes(vectors: Array, per_aggregate: int) -> bool:
    """True where kernels do that: on a GPU, for 8, 16, 24 or 32 vectors on up to 1024 sites."""
    return bool(kernel("wilson_galerkin.takes", type(vectors))(vectors.shape[-1], per_aggregate))


def places(sites: Array) -> Array:
    """Numbers of the places in ``[aggregate, site]`` of all sites of the lattice, int32 ``[site]``."""
    return kernel("wilson_galerkin.places", type(sites))(sites)


def put_hop(
    vectors: Array,
    where: Aggregated,
    links: Array,
    mu: int,
    factor: float,
    inside: Array,
    coarse_links: Array,
) -> None:
    """Write factor P^H (1 - gamma_mu) U_mu P of the hops that stay in their aggregate, and of the others.

    links: complex128 ``[mu, parity, site, 3, 3]``. inside ``[aggregate, 2 k, 2 k]``; the others go to
    direction 2 mu of coarse_links ``[aggregate, 8, 2 k, 2 k]``.
    """
    start = kernel("wilson_galerkin.put_hop", type(vectors))
    start(vectors, where, links, mu, factor, inside, coarse_links)


def put_local(vectors: Array, sites: Array, clover: Any, lattice: Lattice, diagonal: Array) -> None:
    """Write P^H A P of the local part to diagonal ``[aggregate, 2 k, 2 k]``.

    clover: packed A of the even and of the odd sites.
    """
    kernel("wilson_galerkin.put_local", type(vectors))(vectors, sites, clover, lattice, diagonal)
