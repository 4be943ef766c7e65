"""Vectors of the even sites as a store holds them, by time slice and vector, and what 16 bits cost them.

Real and imaginary parts ``[time, site, 3, k, 2]``, `site` numbered within the slice: float64, float32, or
16-bit codes (`stages.lqcd.kernels.short_numbers`) with a float32 scale ``[time, site, k]``, the largest part
of the three colours. Sites are numbered with t slowest, so that a slice of a field is a block of its rows.

Rounding mixes all modes into a vector, most of them high ones. On the even sites they hardly matter; an odd
partner D_oe v, whose norm is the square root of a small eigenvalue, multiplies them by up to |D|. A Chebyshev
polynomial of B, near one where the vectors live and small above, takes them out again (`polished`).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import LinearOperator
from stages.lqcd.eigen.chebyshev import ChebyshevFilter, RepeatedFilter
from stages.lqcd.kernels import block_blas, lane_blas
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import assign, contiguous, empty_field, field_like
from stages.lqcd.kernels.short_numbers import decoded, encoded, largest_parts, scale_for
from stages.lqcd.kernels.transfer import Stored, copy_to_host, to_device
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.sizes import COMPLEX
from stages.lqcd.solvers.deflation import upper_bound
from stages.lqcd.solvers.space import WIDTH, Space

DTYPES = {"double": np.float64, "single": np.float32, "half": np.uint16}
"""Of the stored parts, by precision."""

SUPPRESSION = 2000.0
"""Of modes above the wanted ones by `polished`, against those near zero."""
REACH = 1.5
"""Times the highest wanted eigenvalue modes are suppressed from."""
MOST_DEGREE = 512
"""Where the wanted ones end that low, modes right above them are suppressed less."""


SINGLE_FROM = 5e-5
"""Tolerance from which a search for vectors that are rounded runs in single precision.

It reaches 6e-6 at best; at 1e-5 256 vectors on 24^3 x 32 took 22 restarts, at 1e-4 two.
"""


def searched_in_single(precision: str, tolerance: float) -> bool:
    """Whether vectors that will be stored in `precision` are searched in single precision."""
    return precision != "double" and tolerance >= SINGLE_FROM


def check_precision(precision: str) -> None:
    """Raises InputError for a precision that vectors cannot be stored in."""
    if precision not in DTYPES:
        raise InputError(f"precision must be one of {', '.join(DTYPES)}, got {precision!r}")


def to_store(vectors: Array, lattice: Lattice, precision: str) -> tuple[NDArray, NDArray[np.float32]]:
    """Parts and scales (none, ``[time, site, 0]``, but for 'half') of vectors ``[site, 3, k]``.

    On the host, where vectors in double are not copied if they lie there.
    """
    check_precision(precision)
    times, sites, k = lattice.time_extent, lattice.sites_per_slice, vectors.shape[-1]
    scale = np.empty((times, sites, k if precision == "half" else 0), np.float32)
    if precision == "double" and isinstance(vectors, np.ndarray):
        return vectors.view(np.float64).reshape(times, sites, 3, k, 2), scale
    parts = np.empty((times, sites, 3, k, 2), DTYPES[precision])
    for t, rows in enumerate(_slices(lattice)):
        values = _parts(vectors[rows])
        if precision == "half":
            scales = scale_for(largest_parts(values))
            scale[t] = copy_to_host(scales)
            values = encoded(values, scales[:, None, :, None])
        parts[t] = copy_to_host(values.astype(DTYPES[precision], copy=False))
    return parts, scale


def from_store(parts: Stored, scale: Stored, xp: ModuleType, count: int | None = None) -> Array:
    """The first `count` vectors (all) ``[site, 3, count]`` in `xp`; reads slice by slice, and no others.

    complex128 where they are stored in double, complex64 otherwise.
    """
    times, sites, colours, k, _ = parts.shape
    k = k if count is None else count
    double = parts.dtype == np.float64
    vectors = empty_field((times * sites, colours, k), np.complex128 if double else np.complex64, xp)
    for t in range(times):
        values = _to(xp, parts[t, :, :, :k])
        if parts.dtype == np.uint16:
            values = decoded(values, _to(xp, scale[t, :, :k])[:, None, :, None])
        assign(vectors[t * sites : (t + 1) * sites], values.view(vectors.dtype)[..., 0])
    return vectors


def polished(space: Space, B: LinearOperator) -> Space:
    """The space of p(B) V, which replaces V in its memory, rounded once, and is measured anew.

    p is a Chebyshev polynomial on the unwanted part of the spectrum, applied in double; B has no negative
    eigenvalue. It takes its degree of applications of B to each vector, and one more.
    """
    V, double = space.vectors, B.astype(np.complex128)
    high = upper_bound(double, V)
    low = min(REACH * float(space.eigenvalues[-1]), 0.5 * high)
    growth, rate = np.arccosh(SUPPRESSION), np.arccosh(1 + 2 * low / (high - low))
    degree = int(np.clip(ceil(growth / rate), 1, MOST_DEGREE))
    window, repeated = ChebyshevFilter(low, high, degree), RepeatedFilter(double)
    block = spare = field_like(V, V[..., :0].shape, np.complex128)
    for first in range(0, len(space), WIDTH):
        some = V[..., first : first + WIDTH]
        if block.shape != some.shape:
            repeated.clear()
            block, spare = (field_like(V, some.shape, np.complex128) for _ in range(2))
        assign(block, some)
        smooth, _ = repeated.apply(window, block, spare)
        lane_blas.lane_divide(smooth, block_blas.norms(smooth), smooth)
        assign(some, smooth)
    return Space.measured(B, V)


def _slices(lattice: Lattice) -> Iterator[slice]:
    sites = lattice.sites_per_slice
    return (slice(t * sites, (t + 1) * sites) for t in range(lattice.time_extent))


def _parts(vectors: Array) -> Array:
    """Real and imaginary parts ``[site, 3, k, 2]``, contiguous."""
    whole = contiguous(vectors).astype(np.complex128, copy=False)
    return whole.view(np.float64).reshape(*vectors.shape, 2)


def _to(xp: ModuleType, part: NDArray) -> Array:
    part = np.ascontiguousarray(part)
    return part if xp is np else to_device(part)


def stored_bytes(lattice: Lattice, vectors: int, precision: str) -> int:
    """Eigenvectors on the even sites as `to_store` gives them, with their scales."""
    per_site = 3 * COMPLEX // {"double": 1, "single": 2, "half": 4}[precision]
    scale = 4 if precision == "half" else 0
    return lattice.half_volume * vectors * (per_site + scale)


def loaded_bytes(lattice: Lattice, vectors: int, precision: str) -> int:
    """Bytes of vectors as `from_store` gives them: complex64 if they were rounded."""
    return 3 * lattice.half_volume * vectors * (COMPLEX if precision == "double" else COMPLEX // 2)
