"""Kernels that are an array expression or a library's call, the same in NumPy and in CuPy, written once.

Arrays of the host are given to them where `stages.lqcd.kernels.cpu` has no kernel of its own, and
`stages.lqcd.kernels.cuda` calls them on what lies on each device. None is in an inner loop.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.gamma import COLOURS, SPINS
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice, T

Triangle: TypeAlias = tuple[NDArray[np.intp], NDArray[np.intp]]
"""Rows and columns of the elements on one side of a diagonal."""

SLAB = 1 << 15
"""Sites whose matrices are taken apart at once."""


def difference(x: Array, y: Array, out: Array) -> Array:
    return array_module(x).subtract(x, y, out=out)


def add(y: Array, x: Array) -> None:
    y += x


def scale(x: Array, factor: float, out: Array) -> Array:
    return array_module(x).multiply(x, factor, out=out)


def affine(out: Array, b: float, x: Array, a: float) -> None:
    out *= b
    out += a * x


def lane_scale(x: Array, factor: Array, out: Array) -> None:
    array_module(x).multiply(x, factor, out=out)


def lane_divide(x: Array, divisor: Array, out: Array) -> None:
    array_module(x).divide(x, divisor, out=out, casting="same_kind")


def lane_add(y: Array, x: Array, factor: Array) -> None:
    y += x * factor


def lane_take(x: Array, lanes: Array) -> Array:
    xp: Any = array_module(x)
    return xp.take(x, xp.asarray(lanes), axis=-1)


def lane_put_add(y: Array, x: Array, lanes: Array, factor: Array | None) -> None:
    y[..., lanes] += x if factor is None else x * factor


def lane_clear(y: Array, lanes: Array) -> None:
    y[..., lanes] = 0


def lane_choose(y: Array, x: Array, chosen: Array) -> None:
    xp: Any = array_module(y)
    y[...] = xp.where(xp.asarray(chosen), x, y)


def rayleigh(block: Array, image: Array) -> tuple[Array, Array]:
    quotients = (block.conj() * image).real.sum(axis=1, dtype=np.float64)
    image -= block * quotients[:, None].astype(block.real.dtype)
    return quotients, (image.real**2 + image.imag**2).sum(axis=1, dtype=np.float64)


def inverse(matrices: Array) -> Array:
    xp: Any = array_module(matrices)
    try:
        return xp.linalg.inv(matrices)
    except np.linalg.LinAlgError:
        return xp.full_like(matrices, np.nan)


def hermitian_inverse(matrices: Array) -> Array:
    result = inverse(matrices)
    return (result + _dagger(result)) / 2


def is_finite(matrices: Array) -> bool:
    return bool(array_module(matrices).isfinite(matrices).all())


def triangles(blocks: Array, constant: float, places: Triangle, out: Array | None = None) -> Array:
    """Reals ``[site, chirality, 36]`` of constant + Hermitian blocks ``[site, chirality, 6, 6]``.

    The diagonals, then re, im of the elements at `places`.
    """
    xp: Any = array_module(blocks)
    reals = xp.empty((*blocks.shape[:2], 36), blocks.real.dtype) if out is None else out
    for slab in _slabs(len(blocks)):
        elements = blocks[(slab, slice(None), *places)]
        reals[slab, :, :6] = blocks[slab].diagonal(axis1=-2, axis2=-1).real + constant
        reals[slab, :, 6::2], reals[slab, :, 7::2] = elements.real, elements.imag
    return reals


def inverse_triangles(reals: Array, places: Triangle, out: Array) -> bool:
    """Write `triangles` of the inverses to `out`; False where one is singular."""
    for slab in _slabs(len(reals)):
        triangles(hermitian_inverse(_blocks(reals[slab], places)), 0.0, places, out[slab])
    return is_finite(out)


def twisted(reals: Array, places: Triangle, mu: float, inverted: bool, out: Array) -> None:
    """Write re, im of all elements of C + i mu gamma5, or of its inverse, to `out` ``[site, chirality, 72]``.

    C: the matrices of which `reals` are the `triangles`.
    """
    diagonal = np.arange(6)
    for slab in _slabs(len(reals)):
        blocks = _blocks(reals[slab], places)
        blocks[:, 0, diagonal, diagonal] += 1j * mu
        blocks[:, 1, diagonal, diagonal] -= 1j * mu
        elements = inverse(blocks) if inverted else blocks
        out[slab, :, ::2] = elements.real.reshape(*elements.shape[:2], 36)
        out[slab, :, 1::2] = elements.imag.reshape(*elements.shape[:2], 36)


def _blocks(reals: Array, places: Triangle) -> Array:
    """Hermitian matrices of which these are the `triangles`."""
    xp: Any = array_module(reals)
    blocks = xp.empty((*reals.shape[:2], 6, 6), np.result_type(reals.dtype, np.complex64))
    elements = reals[..., 6::2] + 1j * reals[..., 7::2]
    diagonal = np.arange(6)
    blocks[..., diagonal, diagonal] = reals[..., :6]
    blocks[(..., *places)], blocks[(..., *places[::-1])] = elements, elements.conj()
    return blocks


def _slabs(sites: int) -> list[slice]:
    """Parts of a field with matrices of clover terms, of some 40 MB as complex128 matrices."""
    return [slice(first, first + SLAB) for first in range(0, sites, SLAB)]


def inverse_root(gram: Array) -> Array:
    xp: Any = array_module(gram)
    norms = xp.sqrt(xp.einsum("...ii->...i", gram).real)
    scaled = gram / xp.where(norms > 0, norms, 1)[..., None] / xp.where(norms > 0, norms, 1)[..., None, :]
    try:
        factor = xp.linalg.cholesky(scaled)
    except np.linalg.LinAlgError:
        factor = xp.full_like(scaled, np.nan)
    return _dagger(xp.linalg.inv(factor)) / norms[..., :, None]


def combined(vectors: Array, matrices: Array) -> Array:
    return vectors @ matrices.astype(vectors.dtype)


def gather(fields: Array, sites: Array, out: Array) -> None:
    xp: Any = array_module(fields)
    n, k = fields.shape[1] // 2, fields.shape[2]
    rows = 2 * sites[:, None] + xp.arange(2, dtype=sites.dtype)[:, None]
    options = {"mode": "clip"} if xp is np else {}  # NumPy would buffer what it may have to refuse
    xp.take(fields.reshape(-1, n * k), rows, axis=0, out=out.reshape(*rows.shape, n * k), **options)


def scattered(vectors: Array, sites: Array, out: Array) -> None:
    count, per_aggregate = sites.shape
    n, k = vectors.shape[2] // per_aggregate, vectors.shape[3]
    fields = out.reshape(len(out), 2, n, 2, k)
    for c in range(2):
        fields[sites, c, :, c] = vectors[:, c].reshape(count, per_aggregate, n, k)


def cut(vectors: Array, places: Array, per_aggregate: int) -> Array:
    xp: Any = array_module(vectors)
    count, _, _, k = vectors.shape
    first = xp.arange(0, 2 * count * per_aggregate, per_aggregate, dtype=places.dtype)
    rows = first.reshape(count, 2, 1) + places[:, None]
    return vectors.reshape(2 * count * per_aggregate, -1)[rows].reshape(count, 2, -1, k)


def weighted(x: Array, phases: Array, out: Array) -> Array:
    return array_module(x).multiply(x, phases[..., None, None], out=out)


def slice_adjoint(x: Array, out: Array) -> Array:
    return array_module(x).conjugate(x.swapaxes(-1, -2), out=out)


def put_rows(table: Array, chosen: NDArray[np.intp], out: Array) -> None:
    out[...] = table[array_module(table).asarray(chosen)]


def slice_scale(x: Array, factor: Array, out: Array) -> None:
    array_module(x).multiply(x, factor[:, None, None], out=out)


def slice_norms2(x: Array) -> Array:
    return (abs(x) ** 2).sum(axis=(1, 2), dtype=np.float64)


def slice_add(y: Array, x: Array, factor: Array) -> None:
    y += factor[:, None, None] * x


def put_sources(vectors: Array, rho: NDArray[np.complex128], out: Array) -> None:
    used = _nonzero(rho, (0, 2))
    rows = vectors.reshape(-1, vectors.shape[-1])[:, used].astype(complex, copy=False)
    for spin in np.flatnonzero(rho.any(axis=(1, 2))).tolist():
        filled = _nonzero(rho[spin], 0)
        product = rows @ array_module(rows).asarray(rho[spin, used, filled])
        out[:, :, spin, :, filled] = product.reshape(len(out), -1, COLOURS, product.shape[-1])


def _nonzero(rho: NDArray[np.complex128], others: int | tuple[int, ...]) -> slice:
    """From the first place that is not zero to the last, along the axis that is not among `others`."""
    places = np.flatnonzero(rho.any(axis=others))
    return slice(int(places[0]), int(places[-1]) + 1)


def spin_pairs(spinors: Array, phases: Array, out: Array, others: Array | None = None) -> None:
    _, sites, spins, *_ = spinors.shape
    # [b, c] by [parity, site, colour, source colour]
    rows, *second = (
        each.transpose(2, 4, 0, 1, 3, 5).reshape(spins**2, 2 * sites, -1)
        for each in (spinors, others)
        if each is not None
    )
    conjugate = (second or [rows])[0].conj().reshape(spins**2, -1).T
    for number in range(len(phases)):
        out[number] = (rows * phases[number][:, None]).reshape(spins**2, -1) @ conjugate


def laplacian_step(links: Array, field: Array, lattice: Lattice, time: int, factor: float) -> Array:
    xp: Any = array_module(field)
    sites = slice(time * lattice.sites_per_slice, (time + 1) * lattice.sites_per_slice)
    moved = -6 * field
    for parity in (EVEN, ODD):
        spinors = field[1 - parity].reshape(lattice.sites_per_slice, SPINS, COLOURS, -1)
        for mu in range(T):
            up, down = (
                xp.asarray(lattice.neighbour(parity, mu, hops)[sites] - sites.start) for hops in (1, -1)
            )
            back = _dagger(links[mu, 1 - parity, sites][down])
            hop = links[mu, parity, sites][:, None] @ spinors[up] + back[:, None] @ spinors[down]
            moved[parity] += hop.reshape(field[parity].shape)
    return field + factor * moved


def masked(eta: Array, member: Array, vectors: Array, subsets: Array) -> Array:
    xp: Any = array_module(eta)
    return eta[:, :, xp.asarray(vectors)] * (xp.asarray(member)[:, :, None] == xp.asarray(subsets))


def signed(eta: Array, signs: Array) -> Array:
    factors = array_module(eta).asarray(signs, eta.dtype)
    return (eta[..., None] * factors[:, None, None]).reshape(*eta.shape[:2], -1)


def largest_parts(parts: Array) -> Array:
    return abs(parts).max(axis=(1, 3))


def _dagger(matrices: Array) -> Array:
    return matrices.conj().swapaxes(-1, -2)
