"""Staples: the building block of fat links and of the gauge action."""

from __future__ import annotations

from stages.lqcd.kernels.directions import staple_tables
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.operands import check_staple
from stages.lqcd.lattice.geometry import Lattice


def add_staple(
    out: Array, field: Array, links_nu: Array, lattice: Lattice, mu: int, nu: int, coefficient: float
) -> None:
    """out(x) += c [ U_nu(x) F(x+nu) U_nu(x+mu)^dag + U_nu(x-nu)^dag F(x-nu) U_nu(x-nu+mu) ] in place.

    out, links_nu and field F (anything that goes from x to x+mu as a link does): ``[parity, site, 3, 3]``.
    `out` must be another array than `field` and `links_nu`. Raises InputError for mu = nu or wrong shapes.
    """
    check_staple(out, field, links_nu, lattice, mu, nu)
    for parity in (0, 1):
        opposite = 1 - parity
        up, side, down, corner = (
            array_module(out).asarray(table) for table in staple_tables(lattice, parity, mu, nu)
        )
        u, other = links_nu[parity], links_nu[opposite]
        above = u @ field[opposite][up] @ _dagger(other[side])
        below = _dagger(other[down]) @ field[opposite][down] @ u[corner]
        out[parity] += coefficient * (above + below)


def weighted_sum(a: float, x: Array, b: float, y: Array) -> Array:
    """a x + b y of two fields of one shape and dtype."""
    return a * x + b * y


def _dagger(matrices: Array) -> Array:
    return matrices.conj().swapaxes(-1, -2)
