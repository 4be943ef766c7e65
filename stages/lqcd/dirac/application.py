"""Operations, and bytes at least, of an even-odd operator's application to one right-hand side.

Every number is read or written once: links and matrices are shared by the right-hand sides of a block,
neighbours are read by one site (`quarkline bench` counts the same).
"""

from __future__ import annotations

from typing import NamedTuple

from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.dirac.wilson import CLOVER_FLOPS, DSLASH_FLOPS, WilsonOperator
from stages.lqcd.kernels.directions import NAIVE_DIRECTIONS
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS

MATRIX = COLOURS * COLOURS
CLOVER = 36
"""Complex numbers of two Hermitian 6 x 6 matrices."""

COMPLEX = {"double": 16, "double-single": 8}
"""Bytes of a number that a solver iterates on, by precision."""

SHORT_VECTOR, HALF_SPINOR = 16, 52
"""Bytes of a colour vector and of a spinor in half precision; their links are counted as those of single."""


class Application(NamedTuple):
    """Floating-point operations and bytes of one right-hand side's part."""

    flops: float
    nbytes: float


def staggered_application(dslash: StaggeredDslash, columns: float, precision: str) -> Application:
    """Application of 4 m^2 - D^2 on one parity, in blocks of so many right-hand sides."""
    half = precision == "double-half"
    number = COMPLEX["double-single" if half else precision]
    vector = SHORT_VECTOR if half else COLOURS * number
    links = number * 2 * dslash.directions * MATRIX / columns
    return Application(2.0 * dslash.flops, dslash.lattice.half_volume * (links + 5 * vector))


def schur_application(operator: WilsonOperator, columns: float, precision: str) -> Application:
    """Application of the symmetric Schur complement of Wilson or Wilson-clover quarks, in such blocks."""
    half = precision == "double-half"
    sites, number = operator.lattice.half_volume, COMPLEX["double-single" if half else precision]
    spinor = HALF_SPINOR if half else COMPONENTS * number
    matrices, each = 2 * operator.has_matrices, CLOVER * (2 if operator.mu else 1)
    flops = 2 * DSLASH_FLOPS + matrices * CLOVER_FLOPS + 4 * COMPONENTS
    shared = (2 * NAIVE_DIRECTIONS * MATRIX + matrices * each) / columns
    return Application(float(sites * flops), sites * (number * shared + 5 * spinor))
