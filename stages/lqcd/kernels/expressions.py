"""Kernels that are an array expression or a library's call, the same in NumPy and in CuPy, written once.

`stages.lqcd.kernels.cpu` and `stages.lqcd.kernels.cuda` take them from here. None is in an inner loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stages.lqcd.kernels.directions import SPATIAL_DIRECTIONS, displacements
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.lattice.geometry import Lattice


def difference(x: Array, y: Array, out: Array) -> Array:
    return array_module(x).subtract(x, y, out=out)


def lane_scale(x: Array, factor: Array, out: Array) -> None:
    array_module(x).multiply(x, factor, out=out)


def lane_divide(x: Array, divisor: Array, out: Array) -> None:
    array_module(x).divide(x, divisor, out=out, casting="same_kind")


def lane_add(y: Array, x: Array, factor: Array) -> None:
    y += x * factor


def lane_take(x: Array, lanes: Array) -> Array:
    xp: Any = array_module(x)
    return xp.take(x, xp.asarray(lanes), axis=-1)


def lane_choose(y: Array, x: Array, chosen: Array) -> None:
    xp: Any = array_module(y)
    y[...] = xp.where(xp.asarray(chosen), x, y)


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


def plus_constant(blocks: Array, constant: float) -> Array:
    return blocks + constant * array_module(blocks).eye(blocks.shape[-1], dtype=blocks.dtype)


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


def gathered(fields: Array, sites: Array) -> Array:
    xp: Any = array_module(fields)
    n, k = fields.shape[1] // 2, fields.shape[2]
    rows = 2 * sites[:, None] + xp.arange(2, dtype=sites.dtype)[:, None]
    return fields.reshape(-1, n * k)[rows].reshape(len(sites), 2, sites.shape[1] * n, k)


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


def spatial_links(links: Array, lattice: Lattice, parity: int, out: Array) -> None:
    for d, (mu, hop) in enumerate(displacements(SPATIAL_DIRECTIONS)):
        if hop == 1:
            out[:, d] = links[mu, parity]
        else:
            origin = array_module(links).asarray(lattice.neighbour(parity, mu, hop))
            out[:, d] = _dagger(links[mu, 1 - parity][origin])


def _dagger(matrices: Array) -> Array:
    return matrices.conj().swapaxes(-1, -2)
