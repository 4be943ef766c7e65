"""Products on each time slice: sink projections, Gram matrices, covariant shifts, the one-link current.

Vectors lie by slice, ``[time, parity, site, colour, column]``, solutions as fields do, ``[parity, site, 12,
column]`` (component 3 spin + colour); sites of a slice are consecutive in both. All are complex64 or
complex128, of one dtype; results are complex128. Sums are in double, in complex64 of sums of some hundred
terms in single.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, array_module, kernel
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, SPINS
from stages.lqcd.kernels.operands import check_array, check_blocks, check_slice_vectors
from stages.lqcd.lattice.geometry import Lattice


def sink_projection(vectors: Array, solutions: Array, out: Array, first: int = 0) -> Array:
    """out[t, spin, i, j] = sum_{x, colour} conj(vectors[t, x, colour, i]) solutions[x, 3 spin + colour, j].

    vectors: of the slices first, first + 1, ... of the solutions, ``[time, 2, site, 3, k]``; solutions
    ``[2, site, 12, N]``; out complex128 ``[time, 4, k, N]``. Returns `out`; raises InputError.
    """
    _check_sink_projection(vectors, solutions, out, first)
    return kernel("slice_products.sink_projection", type(vectors))(vectors, solutions, out, first)


def slice_gram(left: Array, right: Array, out: Array) -> Array:
    """out[t, i, j] = sum_{x, colour} conj(left[t, x, colour, i]) right[t, x, colour, j].

    left, right ``[time, 2, site, 3, column]``; out complex128 ``[time, left column, right column]``. Returns
    `out`; raises InputError.
    """
    check_slice_vectors("left", left)
    check_array("right", right, (*left.shape[:-1], right.shape[-1]), left.dtype)
    check_array("out", out, (len(left), left.shape[-1], right.shape[-1]), np.dtype(complex))
    return kernel("slice_products.slice_gram", type(left))(left, right, out)


def slice_adjoint(x: Array, out: Array) -> Array:
    """out[t, j, i] = conj(x[t, i, j]); x, out complex128 ``[time, *, *]`` that share no memory."""
    return kernel("slice_products.slice_adjoint", type(x))(x, out)


def weighted(x: Array, phases: Array, out: Array) -> Array:
    """``out = x`` times a number of each site, ``[time, 2, site]``; x ``[time, 2, site, 3, column]``.

    Returns `out`, which may be `x`; raises InputError.
    """
    check_slice_vectors("x", x)
    check_array("out", out, x.shape, x.dtype)
    check_array("phases", phases, x.shape[:3], x.dtype)
    return kernel("slice_products.weighted", type(x))(x, phases, out)


def slice_scale(x: Array, factor: Array, out: Array) -> None:
    """``out = factor x``, factor ``[time, column]``, x ``[time, site, 3, column]``; `out` may be `x`."""
    if x.shape != out.shape:
        raise InputError(f"x {x.shape} and out {out.shape} must have one shape")
    kernel("slice_products.slice_scale", type(x))(x, factor, out)


def slice_norms2(x: Array) -> Array:
    """|x|^2 of each slice and column of x ``[time, site, 3, column]``: float64 ``[time, column]``."""
    return kernel("slice_products.slice_norms2", type(x))(x)


def slice_add(y: Array, x: Array, factor: Array) -> None:
    """``y += factor x``, factor ``[time, column]``, y ``[time, site, 3, column]``."""
    check_array("x", x, y.shape, y.dtype)
    kernel("slice_products.slice_add", type(y))(y, x, factor)


def put_rows(table: Array, chosen: NDArray[np.intp], out: Array) -> None:
    """out[t, p] = table[chosen[t, p]]: table ``[row, site]``, chosen ``[time, 2]``, on the host."""
    kernel("slice_products.put_rows", type(out))(table, chosen, out)


def put_sources(vectors: Array, rho: NDArray[np.complex128], out: Array) -> None:
    """out[p, x, s, c, j] = sum_i v_i(p, x, c) rho[s, i, j] of one slice, for spins s where rho is not zero.

    vectors: v ``[2, site, 3, k]``; rho ``[4, k, N]``, on the host and not zero; out complex128 ``[2, site, 4,
    3, N]``, zero before, slices of a field.
    """
    kernel("slice_products.put_sources", type(out))(vectors, rho, out)


def spin_pairs(spinors: Array, phases: Array, out: Array, others: Array | None = None) -> None:
    """Spin traces ``out[p, (b, c), (a, d)] = sum_x e_p(x) sum_colours S[b, c] S'[a, d]^*`` on one slice.

    S, S': spinors and others, or twice the same, ``[2, site, spin b, colour, spin c, column of c]``; phases e
    ``[momentum, 2 * site]``; out complex128 ``[momentum, 16, 16]``.
    """
    kernel("slice_products.spin_pairs", type(spinors))(spinors, phases, out, others)


def workspace_bytes(vectors: tuple[int, ...], columns: int, dtype: np.dtype, xp: ModuleType) -> int:
    """Bytes that either product in `xp` allocates at most beside its operands.

    For vectors of this shape with so many columns (spins and right-hand sides).
    """
    return kernel("slice_products.workspace_bytes", xp.ndarray)(vectors, columns, dtype)


def slice_shift(
    links: Array, field: Array, out: Array, lattice: Lattice, mu: int, step: int, first: int = 0
) -> Array:
    """out(x) = U_mu(x) field(x + mu) for step 1, U_mu(x - mu)^dag field(x - mu) for step -1; mu spatial.

    links ``[mu, parity, site, 3, 3]``; field, out ``[time, parity, site, 3, column]``, the slices first,
    first + 1, ... of the lattice; all of one dtype, complex64 or complex128. Returns `out`, another array
    than `field`; raises InputError.
    """
    _check_shift(links, field, out, lattice, mu, step, first)
    return kernel("slice_products.slice_shift", type(field))(links, field, out, lattice, mu, step, first)


def laplacian_step(links: Array, field: Array, lattice: Lattice, time: int, factor: float) -> Array:
    """(1 + c Laplacian) f: sum_{j = x, y, z} [U_j(x) f(x+j) + U_j(x-j)^dag f(x-j)] - 6 f(x), times c, and f.

    links ``[mu, parity, site, 3, 3]`` of the lattice; field f ``[parity, site of the slice, 12, column]``, on
    the slice `time`; c = `factor`; the result is new.
    """
    return kernel("slice_products.laplacian_step", type(field))(links, field, lattice, time, factor)


def one_link_current(links: Array, noise: Array, solution: Array, lattice: Lattice, parity: int) -> Array:
    """J_mu(t) = -Im sum_{x in t, x of parity} noise(x)^dag U_mu(x) solution(x + mu), float64 ``[N, mu, t]``.

    links: phased, of `parity`, ``[mu, site, 3, 3]``, used in the noise's precision; noise ``[site, 3, N]``
    on `parity`; solution ``[site, 3, N]`` on the opposite parity. Sign and normalisation are MILC's.
    """
    links = array_module(noise).ascontiguousarray(links, noise.dtype)
    check_blocks(noise=noise)
    check_array("noise", noise, (lattice.half_volume, 3, noise.shape[-1]), noise.dtype)
    check_array("solution", solution, noise.shape, noise.dtype)
    check_array("links", links, (4, lattice.half_volume, 3, 3), noise.dtype)
    start = kernel("slice_products.one_link_current", type(noise))
    return start(links, noise, solution, lattice, parity)


def slice_dots(x: Array, y: Array, lattice: Lattice) -> Array:
    """conj(x) . y of each right-hand side and time slice, complex128 ``[N, t]``; x, y ``[site, 3, N]``."""
    check_blocks(x=x)
    check_array("x", x, (lattice.half_volume, 3, x.shape[-1]), x.dtype)
    check_array("y", y, x.shape, x.dtype)
    return kernel("slice_products.slice_dots", type(x))(x, y, lattice)


def _check_sink_projection(vectors: Array, solutions: Array, out: Array, first: int) -> None:
    """Raise InputError unless the operands of `sink_projection` fit each other.

    Solutions ``[2, site, 12, N]`` of the dtype of `vectors` hold their slices from `first` on, and `out` is
    complex128 ``[time, 4, k, N]``.
    """
    check_slice_vectors("vectors", vectors)
    times, _, sites, _, k = vectors.shape
    if solutions.ndim != 4 or solutions.shape[1] % sites or not solutions.size:
        raise InputError(
            f"solutions must have shape (2, a multiple of {sites} sites, {COMPONENTS}, columns), "
            f"got {solutions.shape}"
        )
    shape = (2, solutions.shape[1], COMPONENTS, solutions.shape[3])
    check_array("solutions", solutions, shape, vectors.dtype)
    held = solutions.shape[1] // sites
    if not 0 <= first <= held - times:
        raise InputError(
            f"{times} slices of vectors from slice {first} on are not among the {held} of the solutions"
        )
    check_array("out", out, (times, SPINS, k, solutions.shape[3]), np.dtype(complex))


def _check_shift(
    links: Array, field: Array, out: Array, lattice: Lattice, mu: int, step: int, first: int
) -> None:
    """Raise InputError unless the operands of a shift fit each other.

    Links are those of the lattice in the dtype of the field, and field and another array out are the same
    number of slices of it, from `first` on; mu is spatial, step 1 or -1.
    """
    if mu not in (0, 1, 2) or step not in (1, -1):
        raise InputError(f"a shift within slices goes along mu = 0, 1, 2 by step 1 or -1, got {mu} by {step}")
    check_slice_vectors("field", field)
    check_array("links", links, (4, 2, lattice.half_volume, COLOURS, COLOURS), field.dtype)
    times, columns = len(field), field.shape[-1]
    for name, array in (("field", field), ("out", out)):
        check_array(name, array, (times, 2, lattice.sites_per_slice, COLOURS, columns), field.dtype)
    if not 0 <= first <= lattice.time_extent - times:
        raise InputError(
            f"{times} slices from slice {first} on are not among the {lattice.time_extent} of the lattice"
        )
    if array_module(field).may_share_memory(field, out):
        raise InputError("out of a shift must not be its input field: give another array")
