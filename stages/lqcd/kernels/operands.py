"""Checks of the arrays handed to a kernel, common to all packages: compiled kernels trust them blindly."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from stages.lqcd.kernels.cg_coefficients import CGCoefficients
from stages.lqcd.kernels.directions import NAIVE_DIRECTIONS, displacements
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.gamma import COMPONENTS
from stages.lqcd.lattice.errors import InputError
from stages.lqcd.lattice.geometry import DIRECTIONS, Lattice


def check_array(name: str, array: Array, shape: tuple[int, ...], dtype: np.dtype) -> None:
    """Raise InputError unless `array` has this shape and dtype and is C-contiguous."""
    if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
        order = "" if array.flags.c_contiguous else " that is not C-contiguous (use ascontiguousarray)"
        found = f"{array.dtype} {array.shape}{order}"
        raise InputError(f"{name} must be a C-contiguous {dtype} array of shape {shape}, got {found}")


def check_links(links: Array, lattice: Lattice, parity: int) -> None:
    """Raise InputError unless `links` is complex ``[site, 16, 8 or 6, 3, 3]`` and `parity` is 0 or 1."""
    if parity not in (0, 1):
        raise InputError(f"parity must be 0 (even) or 1 (odd), got {parity}")
    if links.ndim != 4 or links.shape[0] != lattice.half_volume or links.shape[2:] != (3, 3):
        raise InputError(
            f"links on {lattice} must have shape ({lattice.half_volume}, 16, 8 or 6, 3, 3), got {links.shape}"
        )
    displacements(links.shape[1])
    if links.dtype not in (np.complex64, np.complex128):
        raise InputError(f"links must be complex64 or complex128, got {links.dtype}")


def check_dslash(
    packed: Any, x: Array, out: Array, diagonal: Array | None, dots: Array | None = None
) -> None:
    """Raise InputError unless x, out, diagonal are ``[site, 3, N]`` of the links' dtype and x is not out.

    dots must be float64 ``[N]`` and come with a diagonal.
    """
    if x.ndim != 3:
        raise InputError(f"x must have shape (sites, 3, right-hand sides), got {x.shape}")
    shape = (packed.lattice.half_volume, 3, x.shape[2])
    check_array("x", x, shape, packed.dtype)
    check_array("out", out, shape, packed.dtype)
    if diagonal is not None:
        check_array("diagonal", diagonal, shape, packed.dtype)
    if dots is not None:
        check_array("dots", dots, shape[2:], np.dtype(np.float64))
        if diagonal is None:
            raise InputError("dots are Re conj(diagonal) out: give a diagonal")
    if array_module(x).may_share_memory(out, x):
        raise InputError("out of the dslash must not be its input x: give another array")


def check_staple(out: Array, field: Array, links_nu: Array, lattice: Lattice, mu: int, nu: int) -> None:
    """Raise InputError unless all are ``[parity, site, 3, 3]`` of one dtype, out no input, mu not nu."""
    if mu == nu or not {mu, nu} <= {0, 1, 2, 3}:
        raise InputError(
            f"a staple needs two different directions out of 0, 1, 2, 3, got mu = {mu}, nu = {nu}"
        )
    shape = (2, lattice.half_volume, 3, 3)
    for name, array in (("out", out), ("field", field), ("links_nu", links_nu)):
        check_array(name, array, shape, out.dtype)
    if out is field or out is links_nu:
        raise InputError("out of add_staple must not be one of its inputs: give another array")


def check_gauge(links: Array, lattice: Lattice, out: Array, *, in_place: bool = False) -> None:
    """Raise InputError unless both are complex ``[mu, parity, site, 3, 3]`` of one dtype, and two arrays."""
    if links.dtype not in (np.complex64, np.complex128):
        raise InputError(f"links must be complex64 or complex128, got {links.dtype}")
    shape = (4, 2, lattice.half_volume, 3, 3)
    for name, array in (("links", links), ("out", out)):
        check_array(name, array, shape, links.dtype)
    if out is links and not in_place:
        raise InputError("out must be another array than the links: their neighbours are read")


def check_finite_links(links: Array, lattice: Lattice) -> None:
    """Raise InputError, naming the first, if an element of links ``[mu, parity, site, ...]`` is not finite.

    One pass over the links, without temporaries: elements of SU(3) matrices cannot overflow in a sum.
    """
    xp = array_module(links)
    if xp.isfinite(links.sum()):
        return
    damaged = xp.argwhere(~xp.isfinite(links).all(axis=(-2, -1)))
    mu, parity, site = (int(number) for number in damaged[0])
    raise InputError(
        f"{len(damaged)} links of the configuration are not finite, the first in direction {DIRECTIONS[mu]} "
        f"at (x, y, z, t) = {tuple(lattice.coordinates(parity)[site].tolist())}: "
        "start from an undamaged gauge field"
    )


def check_matrices(matrices: Array, out: Array) -> None:
    """Raise InputError unless both are complex128 ``[matrix, 3, 3]``."""
    for name, array in (("matrices", matrices), ("out", out)):
        check_array(name, array, (len(matrices), 3, 3), np.dtype(complex))


def check_blocks(**blocks: Array) -> None:
    """Raise InputError unless all are C-contiguous complex ``[..., N]`` of one dtype and number of rows."""
    first_name, first = next(iter(blocks.items()))
    rows = prod(first.shape[:-1])
    for name, block in blocks.items():
        if block.dtype not in (np.complex64, np.complex128) or not block.flags.c_contiguous:
            found = f"{block.dtype} with strides {block.strides}"
            raise InputError(f"{name} must be C-contiguous and complex64 or complex128, got {found}")
        if block.dtype != first.dtype or block.size != rows * block.shape[-1]:
            wanted, found = f"{first.dtype} {first.shape}", f"{block.dtype} {block.shape}"
            raise InputError(f"{name} must match {first_name} in rows and dtype ({wanted}), got {found}")


def check_coefficients(a: Array, x: Array, out: Array) -> None:
    """Raise InputError unless `a` is a matrix that takes the right-hand sides of `x` to those of `out`."""
    shape = (x.shape[-1], out.shape[-1])
    if a.shape != shape:
        raise InputError(f"the matrix must have shape {shape} (right-hand sides in, out), got {a.shape}")


def check_cg(coefficients: CGCoefficients, **fields: Array) -> None:
    """Raise InputError unless the fields match and there is one of each number for each right-hand side."""
    check_blocks(**fields)
    first = next(iter(fields.values()))
    for name, array in fields.items():
        check_array(name, array, first.shape, first.dtype)
    if coefficients.rhs != first.shape[-1]:
        raise InputError(
            f"coefficients must be those of {first.shape[-1]} right-hand sides, got {coefficients.rhs}"
        )


def check_current(links: Array, noise: Array, solution: Array, lattice: Lattice) -> None:
    """Raise InputError unless links are ``[4, site, 3, 3]``, noise, solution ``[site, 3, N]``."""
    check_blocks(noise=noise)
    check_array("noise", noise, (lattice.half_volume, 3, noise.shape[-1]), noise.dtype)
    check_array("solution", solution, noise.shape, noise.dtype)
    check_array("links", links, (4, lattice.half_volume, 3, 3), noise.dtype)


def check_step(a: Any, *, p: Array, **blocks: Array) -> None:
    """Raise InputError unless p, q, ap are blocks of one shape, x has their rows and dtype, and `a` fits."""
    check_blocks(p=p)
    shape, width = (*p.shape[:-1], a.c.shape[1]), a.c.shape[0]
    for name, block in {"p": p, **blocks}.items():
        check_array(name, block, shape if name == "x" else (*p.shape[:-1], width), p.dtype)


def check_basis(V: Array) -> Array:
    """V ``[*, k]`` as its rows ``[R, k]``, no copy; V is C-contiguous or leading columns of such an array.

    Raises InputError for another order or dtype.
    """
    if V.ndim < 2 or V.dtype not in (np.complex64, np.complex128):
        raise InputError(f"a basis is complex64 or complex128 [*, vectors], got {V.dtype} {V.shape}")
    stride, itemsize = V.strides[-2], V.itemsize
    wanted = [itemsize]
    for axis in range(V.ndim - 2, -1, -1):
        wanted.insert(0, stride)
        stride *= V.shape[axis]
    if V.size and (tuple(wanted) != V.strides or V.strides[-2] < itemsize * V.shape[-1]):
        raise InputError(
            f"a basis must be C-contiguous or leading columns of such an array, got strides {V.strides} of "
            f"{V.dtype} {V.shape}: use ascontiguousarray"
        )
    return V.reshape(-1, V.shape[-1])


def check_projection(V: Array, x: Array) -> tuple[Array, Array]:
    """Rows of V and of x, which must be as many. Raises InputError."""
    rows, other = check_basis(V), check_basis(x)
    if len(rows) != len(other):
        raise InputError(f"vectors {V.shape} and block {x.shape} must have the same sites and components")
    return rows, other


def check_rotation(V: Array, Q: Array) -> Array:
    """Rows of V ``[*, k]`` for Q ``[k, k']``, k' <= k. Raises InputError."""
    if Q.ndim != 2 or Q.shape[0] != V.shape[-1] or Q.shape[1] > Q.shape[0]:
        raise InputError(
            f"a rotation of {V.shape[-1]} vectors in place has shape ({V.shape[-1]}, at most "
            f"{V.shape[-1]}), got {Q.shape}"
        )
    return check_basis(V)


def check_batch(V: Array, x: Array) -> None:
    """Raise InputError unless V ``[S, n, k]``, x ``[S, n, N]`` are leading columns of contiguous arrays."""
    for array in (V, x):
        if array.ndim != 3 or array.dtype not in (np.complex64, np.complex128):
            raise InputError(
                f"a batch of bases is complex64 or complex128 of shape (systems, rows, columns), "
                f"got {array.dtype} {array.shape}"
            )
        if array.size and not array[0, :1].flags.c_contiguous:
            raise InputError(f"the columns of a batch of bases {array.shape} must lie next to each other")
        if array.size and array.strides[0] != array.shape[1] * array.strides[1]:
            raise InputError(
                f"the systems of a batch of bases {array.shape} must follow each other in memory"
            )
    if V.shape[:2] != x.shape[:2] or V.dtype != x.dtype:
        raise InputError(
            f"a batch of bases, {V.dtype} {V.shape}, and its block, {x.dtype} {x.shape}, must have the same "
            "systems, rows and dtype"
        )


def check_batch_matrices(C: Array, V: Array, columns: int) -> None:
    """Raise InputError unless C is ``[S, k, columns]`` for V ``[S, n, k]``."""
    shape = (V.shape[0], V.shape[2], columns)
    if C.shape != shape:
        raise InputError(f"matrices for a batch of bases {V.shape} have shape {shape}, got {C.shape}")


def check_wilson_links(links: Array, lattice: Lattice, parity: int) -> None:
    """Raise InputError unless `links` is complex ``[site, 8, 3, 3]`` and `parity` is 0 or 1."""
    check_links(links, lattice, parity)
    if links.shape[1] != NAIVE_DIRECTIONS:
        raise InputError(f"links of a Wilson operator have 8 directions, got {links.shape[1]}")


def check_wilson_dslash(
    packed: Any,
    x: Array,
    out: Array,
    diagonal: Array | None,
    sign: int,
    hop_clover: Any,
    diagonal_clover: Any,
) -> None:
    """Raise InputError unless x, out, diagonal are ``[site, 12, N]`` of the links' dtype, x is not out, and
    one clover matrix at most is given, that of the diagonal with a diagonal.
    """
    check_wilson_terms(packed, diagonal, sign, hop_clover, diagonal_clover)
    if x.ndim != 3:
        raise InputError(f"x must have shape (sites, 12, right-hand sides), got {x.shape}")
    shape = (packed.lattice.half_volume, COMPONENTS, x.shape[2])
    check_array("x", x, shape, packed.dtype)
    check_array("out", out, shape, packed.dtype)
    if diagonal is not None:
        check_array("diagonal", diagonal, shape, packed.dtype)
    if array_module(x).may_share_memory(out, x):
        raise InputError("out of the dslash must not be its input x: give another array")


def check_wilson_terms(
    packed: Any, diagonal: Array | None, sign: int, hop_clover: Any, diagonal_clover: Any
) -> None:
    """The part of `check_wilson_dslash` that does not look at fields."""
    if sign not in (1, -1):
        raise InputError(f"sign must be 1, or -1 for the adjoint, got {sign}")
    if hop_clover is not None and diagonal_clover is not None:
        raise InputError("give hop_clover or diagonal_clover, not both")
    if diagonal_clover is not None and diagonal is None:
        raise InputError("diagonal_clover multiplies the diagonal: give one")
    for clover in (hop_clover, diagonal_clover):
        sites = packed.lattice.half_volume
        if clover is not None and (clover.sites, clover.dtype) != (sites, packed.dtype):
            raise InputError(
                f"clover matrices must be {packed.dtype} on {sites} sites, "
                f"got {clover.dtype} on {clover.sites}"
            )


def check_clover_blocks(blocks: Array) -> None:
    """Raise InputError unless `blocks` is C-contiguous complex ``[site, 2, 6, 6]``."""
    if blocks.dtype not in (np.complex64, np.complex128):
        raise InputError(f"clover matrices must be complex64 or complex128, got {blocks.dtype}")
    check_array("clover matrices", blocks, (len(blocks), 2, 6, 6), blocks.dtype)


def check_clover(packed: Any, x: Array, out: Array) -> None:
    """Raise InputError unless x and out are ``[site, 12, N]`` on the sites of the clover matrices."""
    if x.ndim != 3:
        raise InputError(f"x must have shape (sites, 12, right-hand sides), got {x.shape}")
    for name, array in (("x", x), ("out", out)):
        check_array(name, array, (packed.sites, COMPONENTS, x.shape[2]), packed.dtype)


def check_lanes(xs: Array, y: Array, a: Array | None = None, scale: Array | None = None) -> None:
    """Raise InputError unless xs is a basis ``[K, ..., N]`` of fields like y, a complex ``[K, N]``, scale
    ``[N]``.
    """
    check_blocks(y=y)
    if xs.ndim != y.ndim + 1 or not len(xs):
        raise InputError(f"a basis of fields {y.shape} must have shape (K, ...) with K > 0, got {xs.shape}")
    check_array("the basis", xs, (len(xs), *y.shape), y.dtype)
    if a is not None and (a.shape != (len(xs), y.shape[-1]) or a.dtype.kind != "c"):
        raise InputError(
            f"coefficients must be complex of shape {(len(xs), y.shape[-1])}, got {a.dtype} {a.shape}"
        )
    if scale is not None and scale.shape != y.shape[-1:]:
        raise InputError(f"scale must have shape {y.shape[-1:]}, got {scale.shape}")


def check_few_fields(xs: Array, most: int) -> None:
    """Raise InputError unless xs is a C-contiguous complex basis ``[K, ..., N]`` of 2 to `most` fields."""
    check_blocks(xs=xs)
    if xs.ndim < 3 or not 2 <= len(xs) <= most:
        raise InputError(f"a Gram matrix is one of 2 to {most} fields [K, ..., N], got shape {xs.shape}")


def check_gram(gram: Array) -> None:
    """Raise InputError unless `gram` is complex128 ``[K, K, N]`` with K at least 2."""
    check_array("gram", gram, (len(gram), len(gram), *gram.shape[2:]), np.dtype(complex))
    if gram.ndim != 3 or len(gram) < 2:
        raise InputError(f"a Gram matrix has shape (K, K, right-hand sides), K at least 2, got {gram.shape}")
