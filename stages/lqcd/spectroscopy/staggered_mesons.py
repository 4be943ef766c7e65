"""Two-point functions of staggered mesons from propagators of one or of two degenerate quarks.

With operators O of `stages.lqcd.spectroscopy.staggered_operators` as matrices on a time slice, G = M^-1 =
(2 m + D)^-1, and P_t the projection on the slice t, the quark-line connected correlator is

    C(t) = Tr [ P_t0+t O G P_t0 O^dag G ]

over colour and space: no factor of volume, charge or taste, and no minus sign. It is positive for the state
that an operator is named after. (MILC's M^-1 is half of that of m + D / 2.) With O' = epsilon O and
G^dag = epsilon G epsilon, and a source b in the place of P_t0 = b b^dag,

    C(t) = sum over columns of < G b | P_t0+t O' G O'^dag b >,

so that two solves serve an operator, and one all local operators of a point. The Goldstone pion, O' = 1, is
sum |G b|^2. At a momentum p of the sink there is exp(-ip(x - x0)) at the site x of the antiquark.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels import block_blas, lane_blas, slice_products
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import contiguous_slices, copied, field_like, zero_field, zeros_like
from stages.lqcd.kernels.gamma import COLOURS
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.noise import noise_vectors
from stages.lqcd.spectroscopy.mesons import Momentum, check_momenta, momentum_phases
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, check_place, slice_sites
from stages.lqcd.spectroscopy.staggered_operators import SpinTaste


def staggered_source(
    lattice: Lattice, place: SourcePlace, label: str, seed: int | None, xp: ModuleType = np
) -> Array:
    """Source b on its time slice, complex128 ``[1, 2, site of the slice, 3, column]``.

    A place with a point: one there, 3 columns, the colours. One with a noise vector: Z2 noise of (seed, the
    configuration's `label`, number) on all sites and colours, 1 column, divided by the square root of the
    slice's sites, so that correlators estimate the mean over the slice of those of points. Neither: a corner
    wall, ones on all sites of even x, y and z, 3 columns; for a fixed gauge. Raises InputError.
    """
    check_place(lattice, place)
    sites = lattice.sites_per_slice
    if place.noise is not None:
        if seed is None:
            raise InputError(f"the source {place.label} is noise, and needs a seed")
        source = zero_field((1, 2, sites, COLOURS, 1), complex, xp)
        here = slice_sites(lattice, place.time)
        for parity in (EVEN, ODD):
            noise = noise_vectors(lattice, parity, label, seed, [place.noise], "z2", xp=xp)
            source[0, parity] = (2 * sites) ** -0.5 * noise[here]
        return source
    source, coordinates = zero_field((1, 2, sites, COLOURS, COLOURS), complex, xp), _on_slice(lattice, place)
    chosen = (coordinates == place.point).all(axis=-1) if place.point else (coordinates % 2 == 0).all(axis=-1)
    source[0] = to_device_like(chosen[..., None, None] * np.eye(COLOURS, dtype=complex), source)
    return source


def source_sign(operator: SpinTaste, place: SourcePlace) -> float | None:
    """The factor +-1 by which O'^dag b differs from b; None where it is another field."""
    corners = np.indices((2, 2, 2)).reshape(3, -1).T
    if place.point is not None:
        corners = np.array([place.point])
    elif place.noise is None:
        corners = corners[:1]
    times = np.full((len(corners), 1), place.time)
    phases = operator.phases(np.concatenate([corners, times], axis=1))
    return float(phases[0]) if not operator.shifts and (phases == phases[0]).all() else None


def at_source(operator: SpinTaste, source: Array, links: Array | None, lattice: Lattice, time: int) -> Array:
    """O'^dag b on the slice `time`, a new field of the shape of b, ``[1, 2, site, 3, column]``.

    links: ``[mu, parity, site, 3, 3]`` without phases and boundary signs, for an operator that has links.
    """
    signed = _with_phases(operator, copied(source), lattice, time)
    return displaced(operator, signed, links, lattice, time)


def staggered_correlator(
    quark: Array,
    antiquark: Array,
    operator: SpinTaste,
    links: Array | None,
    lattice: Lattice,
    place: SourcePlace,
    momenta: Sequence[Momentum] = ((0, 0, 0),),
) -> NDArray[np.complex128]:
    """C(p, t) of one source, complex128 ``[momentum, time]`` on the host, t = 0 at the source.

    quark: G b, antiquark: G O'^dag b, ``[parity, site, 3, column]``. links: as for `at_source`. Raises
    InputError.
    """
    check_place(lattice, place)
    check_momenta(momenta)
    expected = (2, lattice.half_volume, COLOURS)
    for field in (quark, antiquark):
        if field.ndim != 4 or field.shape[:3] != expected or field.shape != quark.shape:
            raise InputError(
                f"quark and antiquark on {lattice} are [2, {lattice.half_volume}, 3, column] with as many "
                f"columns each, got {list(quark.shape)} and {list(antiquark.shape)}"
            )
    left, right = (_by_slice(field, lattice) for field in (quark, antiquark))
    right = _with_phases(operator, displaced(operator, right, links, lattice), lattice)
    tables = np.stack([momentum_phases(lattice, place, momentum) for momentum in momenta])
    columns = left.shape[-1]
    correlator = np.empty((len(momenta), lattice.time_extent), complex)
    gram = field_like(left, (lattice.time_extent, columns, columns), complex)
    moving = field_like(right)
    for number, table in enumerate(tables):
        phases = to_device_like(table.reshape(lattice.time_extent, 2, -1), right)
        slice_products.slice_gram(left, slice_products.weighted(right, phases, moving), gram)
        correlator[number] = np.trace(as_numpy(gram), axis1=1, axis2=2)
    return np.roll(correlator, -place.time, axis=1)


def displaced(
    operator: SpinTaste, field: Array, links: Array | None, lattice: Lattice, first: int = 0
) -> Array:
    """D psi of an operator, on the slices first, first + 1, ...: ``[time, 2, site, 3, column]``.

    The field itself for a local operator. Raises InputError where links are missing.
    """
    if not operator.shifts:
        return field
    if links is None:
        raise InputError(f"the operator {operator.spin}-{operator.taste} needs gauge links for its shifts")
    orders = list(permutations(operator.shifts))
    total, count = zeros_like(field), to_device_like(np.full(field.shape[-1], float(len(orders))), field)
    ahead, behind, moved = (field_like(field) for _ in range(3))
    for order in orders:
        shifted = field
        for mu in order:
            slice_products.slice_shift(links, shifted, ahead, lattice, mu, 1, first)
            slice_products.slice_shift(links, shifted, behind, lattice, mu, -1, first)
            block_blas.add(ahead, behind)
            shifted = block_blas.scale(ahead, 0.5, moved)
        lane_blas.lane_divide(moved, count, moved)
        block_blas.add(total, moved)
    return total


def _with_phases(operator: SpinTaste, field: Array, lattice: Lattice, time: int | None = None) -> Array:
    """Epsilon phi times a field of all slices or of one, in its place."""
    phases = np.stack([operator.phases(lattice.coordinates(parity)) for parity in (EVEN, ODD)])
    by_slice = phases.reshape(2, lattice.time_extent, -1).swapaxes(0, 1)
    chosen = by_slice if time is None else by_slice[time : time + 1]
    table = to_device_like(np.ascontiguousarray(chosen, dtype=complex), field)
    return slice_products.weighted(field, table, field)


def _by_slice(field: Array, lattice: Lattice) -> Array:
    """``[parity, site, 3, column]`` as ``[time, parity, site of the slice, 3, column]``, a copy."""
    slices = field.reshape(2, lattice.time_extent, lattice.sites_per_slice, *field.shape[2:])
    return contiguous_slices(slices.swapaxes(0, 1))


def _on_slice(lattice: Lattice, place: SourcePlace) -> NDArray[np.int32]:
    """Coordinates x, y, z of the sites of a place's slice, ``[parity, site, 3]``."""
    here = slice_sites(lattice, place.time)
    return np.stack([lattice.coordinates(parity)[here, :3] for parity in (EVEN, ODD)])
