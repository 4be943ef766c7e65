"""Smearing of links, step by step: staples, the update of stout smearing, projections to SU(3) and to U(3).

The gauge action is made of the same staples. Stout smearing: arXiv:hep-lat/0311018.
"""

from __future__ import annotations

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_array
from stages.lqcd.lattice.geometry import Lattice

SMALLEST_DETERMINANT = 1e-8
"""Of V^dag V, with V scaled to tr V^dag V = 3: below it the singular values decide."""

LARGEST_UNITARITY_ERROR = 1e-7
"""Of the analytic W before its last Newton step, which squares it; above it the singular values decide."""


def add_staple(
    out: Array, field: Array, links_nu: Array, lattice: Lattice, mu: int, nu: int, coefficient: float
) -> None:
    """out(x) += c [ U_nu(x) F(x+nu) U_nu(x+mu)^dag + U_nu(x-nu)^dag F(x-nu) U_nu(x-nu+mu) ] in place.

    out, links_nu and field F (anything that goes from x to x+mu as a link does): ``[parity, site, 3, 3]``.
    `out` must be another array than `field` and `links_nu`. Raises InputError for mu = nu or wrong shapes.
    """
    _check_staple(out, field, links_nu, lattice, mu, nu)
    kernel("smearing.add_staple", type(out))(out, field, links_nu, lattice, mu, nu, coefficient)


def weighted_sum(a: float, x: Array, b: float, y: Array, out: Array) -> None:
    """``out = a x + b y`` of fields of one shape and dtype."""
    for name, array in (("y", y), ("out", out)):
        check_array(name, array, x.shape, x.dtype)
    kernel("smearing.weighted_sum", type(x))(a, x, b, y, out)


def smeared_links(staples: Array, links: Array, out: Array) -> None:
    """``out = exp(A) U``, A the traceless anti-Hermitian part of C U^dag, of staples C and links U.

    All are complex128 ``[parity, site, 3, 3]``; `out` may be `links`. Raises InputError.
    """
    for name, array in (("staples", staples), ("links", links), ("out", out)):
        check_array(name, array, (*links.shape[:-2], 3, 3), np.dtype(complex))
    kernel("smearing.smeared_links", type(links))(staples, links, out)


def special_unitary(links: Array, out: Array) -> float:
    """Gram-Schmidt on the rows, the third is (row 1 x row 2)^*; returns the largest change of an element.

    links, out ``[matrix, 3, 3]`` complex128; out may be links. NaN where a row vanishes.
    """
    _check_matrices(links, out)
    return kernel("smearing.special_unitary", type(links))(links, out)


def unitary(matrices: Array, out: Array) -> Array:
    """Polar factors V (V^dag V)^(-1/2); returns where that fails, bool ``[matrix]``, and out = V there.

    matrices, out ``[matrix, 3, 3]`` complex128; out may be matrices. Analytic by Cayley-Hamilton
    (arXiv:1004.0342, appendix C), polished by one Newton step.
    """
    _check_matrices(matrices, out)
    return kernel("smearing.unitary", type(matrices))(matrices, out)


def by_singular_values(matrices: Array, chosen: Array) -> int:
    """V becomes A B^dag of its decomposition V = A S B^dag where `chosen` says so; returns how many.

    matrices ``[matrix, 3, 3]`` complex128, chosen bool ``[matrix]``.
    """
    _check_matrices(matrices, matrices)
    check_array("chosen", chosen, (len(matrices),), np.dtype(bool))
    return kernel("smearing.by_singular_values", type(matrices))(matrices, chosen)


def without_phase(matrices: Array) -> None:
    """W becomes W det(W)^(-1/3), the cube root of the smallest phase, for W in U(3) ``[matrix, 3, 3]``."""
    _check_matrices(matrices, matrices)
    kernel("smearing.without_phase", type(matrices))(matrices)


def _check_staple(out: Array, field: Array, links_nu: Array, lattice: Lattice, mu: int, nu: int) -> None:
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


def _check_matrices(matrices: Array, out: Array) -> None:
    """Raise InputError unless both are complex128 ``[matrix, 3, 3]``."""
    for name, array in (("matrices", matrices), ("out", out)):
        check_array(name, array, (len(matrices), 3, 3), np.dtype(complex))
