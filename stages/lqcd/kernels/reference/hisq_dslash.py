"""All directions in one batched product per site: ``[3, 3 D]`` links times ``[3 D, N]`` neighbours."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stages.lqcd.kernels.directions import (
    HISQ_DIRECTIONS,
    NAIVE_DIRECTIONS,
    SPATIAL_DIRECTIONS,
    neighbour_table,
)
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.kernels.link_forms import StaggeredForm
from stages.lqcd.kernels.reference.link_fields import doubled_links
from stages.lqcd.kernels.reference.short_numbers import put, whole
from stages.lqcd.kernels.short_numbers import Vectors
from stages.lqcd.lattice.geometry import Lattice

SLAB = 1 << 12
"""Sites whose neighbours are gathered at once: as many fields as there are directions."""


@dataclass(frozen=True)
class PackedLinks:
    """Direction-doubled, pre-daggered, signed links into the sites of `parity`.

    `links` is ``[site, 3, 3 directions]``, `neighbours` int32 ``[site, direction]`` in the opposite parity;
    the order of the directions is that of `stages.lqcd.kernels.directions`.
    """

    lattice: Lattice
    parity: int
    directions: int
    dtype: np.dtype
    links: Array
    neighbours: Array
    short: bool = False


def pack(links: Array, lattice: Lattice, parity: int) -> PackedLinks:
    sites, directions = links.shape[:2]
    rows = links.swapaxes(1, 2).reshape(sites, 3, -1)
    neighbours = array_module(links).asarray(neighbour_table(lattice, parity, directions))
    return PackedLinks(lattice, parity, directions, np.dtype(links.dtype), rows, neighbours)


def pack_spatial(links: Array, lattice: Lattice, parity: int, dtype: np.dtype) -> PackedLinks:
    doubled = field_like(links, (lattice.half_volume, 3, SPATIAL_DIRECTIONS, 3), dtype).swapaxes(1, 2)
    doubled_links(links, None, lattice, parity, doubled)
    return pack(doubled, lattice, parity)


def pack_fields(
    one_hop: Array,
    three_hops: Array | None,
    lattice: Lattice,
    parity: int,
    dtype: np.dtype,
    form: StaggeredForm = StaggeredForm.MATRICES,
) -> PackedLinks:
    directions = NAIVE_DIRECTIONS if three_hops is None else HISQ_DIRECTIONS
    doubled = field_like(one_hop, (lattice.half_volume, 3, directions, 3), dtype).swapaxes(1, 2)
    doubled_links(one_hop, three_hops, lattice, parity, doubled)
    return replace(pack(doubled, lattice, parity), short=form is StaggeredForm.SHORT)


def hisq_dslash(
    packed: PackedLinks,
    x: Vectors,
    out: Vectors,
    *,
    diagonal: Vectors | None = None,
    a: float = 0.0,
    b: float = 1.0,
    dots: Array | None = None,
) -> Vectors:
    field = whole(x)
    result = np.empty((len(packed.links), *field.shape[1:]), np.result_type(packed.links, field))
    for low in range(0, len(result), SLAB):
        sites = slice(low, low + SLAB)
        around = field[packed.neighbours[sites]]
        result[sites] = b * (packed.links[sites] @ around.reshape(len(around), 3 * packed.directions, -1))
    if diagonal is not None:
        added = whole(diagonal)
        result = a * added + result
        if dots is not None:
            dots[...] = (added.conj() * result.astype(complex)).sum(axis=(0, 1)).real
    put(out, result)
    return out
