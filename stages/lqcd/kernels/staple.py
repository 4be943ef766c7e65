"""Staples: the building block of fat links and of the gauge action."""

from __future__ import annotations

from stages.base.errors import InputError
from stages.lqcd.kernels.dispatch import Array, kernel
from stages.lqcd.kernels.operands import check_array
from stages.lqcd.lattice.geometry import Lattice


def add_staple(
    out: Array, field: Array, links_nu: Array, lattice: Lattice, mu: int, nu: int, coefficient: float
) -> None:
    """out(x) += c [ U_nu(x) F(x+nu) U_nu(x+mu)^dag + U_nu(x-nu)^dag F(x-nu) U_nu(x-nu+mu) ] in place.

    out, links_nu and field F (anything that goes from x to x+mu as a link does): ``[parity, site, 3, 3]``.
    `out` must be another array than `field` and `links_nu`. Raises InputError for mu = nu or wrong shapes.
    """
    _check_operands(out, field, links_nu, lattice, mu, nu)
    kernel("staple.add_staple", type(out))(out, field, links_nu, lattice, mu, nu, coefficient)


def weighted_sum(a: float, x: Array, b: float, y: Array, out: Array) -> None:
    """``out = a x + b y`` of fields of one shape and dtype."""
    for name, array in (("y", y), ("out", out)):
        check_array(name, array, x.shape, x.dtype)
    kernel("staple.weighted_sum", type(x))(a, x, b, y, out)


def scaled(factor: float, x: Array, out: Array) -> None:
    """``out = factor x`` of a field; `out` may be `x`."""
    check_array("out", out, x.shape, x.dtype)
    kernel("staple.scaled", type(x))(factor, x, out)


def _check_operands(out: Array, field: Array, links_nu: Array, lattice: Lattice, mu: int, nu: int) -> None:
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
