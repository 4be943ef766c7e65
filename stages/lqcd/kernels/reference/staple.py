"""Gathers and batched products."""

from __future__ import annotations

from stages.lqcd.kernels.directions import staple_tables
from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.lattice.geometry import Lattice


def add_staple(
    out: Array, field: Array, links_nu: Array, lattice: Lattice, mu: int, nu: int, coefficient: float
) -> None:
    for parity in (0, 1):
        opposite = 1 - parity
        up, side, down, corner = (
            array_module(out).asarray(table) for table in staple_tables(lattice, parity, mu, nu)
        )
        u, other = links_nu[parity], links_nu[opposite]
        above = u @ field[opposite][up] @ _dagger(other[side])
        below = _dagger(other[down]) @ field[opposite][down] @ u[corner]
        out[parity] += coefficient * (above + below)


def weighted_sum(a: float, x: Array, b: float, y: Array, out: Array) -> None:
    out[...] = a * x + b * y


def _dagger(matrices: Array) -> Array:
    return matrices.conj().swapaxes(-1, -2)
