"""Dense products of the vectors of neighbouring aggregates, one direction and aggregate at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.lqcd.kernels import clover as clover_kernels
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, GAMMA, SPINS
from stages.lqcd.kernels.wilson_galerkin import Aggregated
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice


def takes(vectors: int, per_aggregate: int) -> bool:
    return True


def places(sites: Array) -> Array:
    result = np.empty(sites.size, np.int32)
    result[sites.reshape(-1)] = np.arange(sites.size, dtype=np.int32)
    return result


def put_hop(
    vectors: Array,
    where: Aggregated,
    links: Array,
    mu: int,
    factor: float,
    inside: Array,
    coarse_links: Array,
) -> None:
    sites, lattice, cut = where.sites, where.lattice, where.extents[mu]
    per_aggregate, half = sites.shape[1], lattice.half_volume
    columns = _columns(vectors, per_aggregate)
    coordinates = np.concatenate([lattice.coordinates(parity) for parity in (EVEN, ODD)])
    beyond = np.concatenate([lattice.neighbour(EVEN, mu, 1) + half, lattice.neighbour(ODD, mu, 1)])
    projector = np.eye(SPINS) - GAMMA[mu]
    for aggregate, own in enumerate(sites):
        there = columns[where.places[beyond[own]]].reshape(per_aggregate, SPINS, COLOURS, -1)
        hopped = np.einsum("ab,scd,sbdk->sack", projector, links[mu].reshape(-1, 3, 3)[own], there)
        rows = columns[aggregate * per_aggregate + np.arange(per_aggregate)].conj()
        leaves = coordinates[own, mu] % cut == cut - 1
        for out, chosen in ((inside[aggregate], ~leaves), (coarse_links[aggregate, 2 * mu], leaves)):
            moved = hopped[chosen].reshape(-1, columns.shape[2])
            out[...] = factor * rows[chosen].reshape(-1, columns.shape[2]).T @ moved


def put_local(vectors: Array, sites: Array, clover: Any, lattice: Lattice, diagonal: Array) -> None:
    columns, half = _columns(vectors, sites.shape[1]), lattice.half_volume
    fields = np.zeros((2, half, *columns.shape[1:]), vectors.dtype)
    fields.reshape(-1, *columns.shape[1:])[sites.reshape(-1)] = columns
    for parity in (EVEN, ODD):
        clover_kernels.multiply(clover[parity], fields[parity], fields[parity])
    moved = fields.reshape(-1, *columns.shape[1:])[sites].reshape(len(sites), -1, columns.shape[2])
    diagonal[...] = columns.conj().reshape(moved.shape).swapaxes(1, 2) @ moved


def _columns(vectors: Array, per_aggregate: int) -> Array:
    """P as ``[aggregate and site, 12, 2 k]``."""
    count, _, _, k = vectors.shape
    columns = np.zeros((count, per_aggregate, 2, COMPONENTS // 2, 2, k), vectors.dtype)
    for chirality in range(2):
        own = vectors[:, chirality].reshape(count, per_aggregate, COMPONENTS // 2, k)
        columns[:, :, chirality, :, chirality] = own
    return columns.reshape(count * per_aggregate, COMPONENTS, 2 * k)
