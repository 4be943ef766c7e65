"""Contractions per time slice: the one-link taste-singlet vector current and plain dot products."""

from __future__ import annotations

from stages.lqcd.kernels.dispatch import Array, array_module, kernel
from stages.lqcd.kernels.operands import check_array, check_blocks
from stages.lqcd.lattice.geometry import Lattice


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
    start = kernel("one_link_current.one_link_current", type(noise))
    return start(links, noise, solution, lattice, parity)


def slice_dots(x: Array, y: Array, lattice: Lattice) -> Array:
    """conj(x) . y of each right-hand side and time slice, complex128 ``[N, t]``; x, y ``[site, 3, N]``."""
    check_blocks(x=x)
    check_array("x", x, (lattice.half_volume, 3, x.shape[-1]), x.dtype)
    check_array("y", y, x.shape, x.dtype)
    return kernel("one_link_current.slice_dots", type(x))(x, y, lattice)
