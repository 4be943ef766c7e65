"""Projections of 3x3 matrices to SU(3) and to U(3).

To SU(3) against the rounding of files and inside APE and HYP smearing, to U(3) inside HISQ smearing.
"""

from __future__ import annotations

from typing import NamedTuple

from stages.base.errors import InputError
from stages.lqcd.kernels import smearing
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import contiguous, field_like
from stages.lqcd.lattice.geometry import Lattice

LARGEST_DEVIATION = 1e-4
"""Links further than this from SU(3) are no gauge configuration; rounding to 32 bits leaves about 1e-7."""


class SpecialUnitary(NamedTuple):
    """links ``[..., 3, 3]`` in SU(3) and the largest change of any matrix element on the way there."""

    links: Array
    deviation: float


class Unitary(NamedTuple):
    """matrices ``[..., 3, 3]`` in U(3) and how many of them took the singular-value decomposition."""

    matrices: Array
    fallbacks: int


def to_su3(links: Array, out: Array | None = None) -> SpecialUnitary:
    """Project links to SU(3) by Gram-Schmidt on the rows; the third row is (row 1 x row 2)^*, as in MILC.

    links ``[..., 3, 3]`` complex128; `out`, C-contiguous if given, may be `links`. Raises InputError if one
    is further than `LARGEST_DEVIATION` from SU(3).
    """
    flat = contiguous(links).reshape(-1, 3, 3)
    result = field_like(links) if out is None else out
    deviation = smearing.special_unitary(flat, result.reshape(-1, 3, 3))
    if not deviation <= LARGEST_DEVIATION:
        far = f"links are {deviation:.2g} away from SU(3), more than the {LARGEST_DEVIATION:g} that rounding "
        raise InputError(
            (f"{far}explains" if deviation > 0 else "some links are zero or not finite, and not in SU(3)")
            + ": give the thin links of a gauge configuration, undamaged; one with an open boundary "
            "has zero links in the last time slice, which Wilson quarks take with boundary: dirichlet"
        )
    return SpecialUnitary(result.reshape(links.shape), deviation)


def to_su3_or_open(links: Array, lattice: Lattice) -> SpecialUnitary:
    """As `to_su3`, in place; zero links that leave the last slice of an open boundary stay as they are."""
    last = links[-1, :, -lattice.sites_per_slice :]
    if last.any():
        return to_su3(links, out=links)
    for row in range(3):
        last[..., row, row] = 1
    made = to_su3(links, out=links)
    last[...] = 0
    return made


def to_u3(v: Array, out: Array | None = None) -> Unitary:
    """The polar factor W = V (V^dag V)^(-1/2) of matrices ``[..., 3, 3]``, complex128, of any determinant.

    Analytic by Cayley-Hamilton (arXiv:1004.0342, appendix C); from the singular values, W = A B^dag for
    V = A S B^dag, where V^dag V is nearly singular or the analytic W is not unitary. `out` may be `v`.
    """
    result = field_like(v, v.shape, complex) if out is None else out
    matrices = result.reshape(-1, 3, 3)
    flat = contiguous(v).reshape(-1, 3, 3)
    singular = smearing.unitary(flat, matrices)
    return Unitary(result, smearing.by_singular_values(matrices, singular))


def polar_su3(v: Array, out: Array | None = None) -> Array:
    """W det(W)^(-1/3) in SU(3), W the polar factor of matrices ``[..., 3, 3]``, complex128.

    The cube root is the one of the smallest phase. P[G V H] = G P[V] H for G, H in SU(3), which Gram-Schmidt
    on rows lacks. QUDA's projection inside smearing; Chroma maximises Re tr(U^dag V) over U in SU(3) instead,
    which is the same matrix only where det W = 1. `out` may be `v`.
    """
    w = to_u3(v, out).matrices
    smearing.without_phase(w.reshape(-1, 3, 3))
    return w
