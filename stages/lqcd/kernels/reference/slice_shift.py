"""Covariant shifts within time slices."""

from __future__ import annotations

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.slice_operands import check_slice_shift
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice


def slice_shift(
    links: Array, field: Array, out: Array, lattice: Lattice, mu: int, step: int, first: int = 0
) -> Array:
    """out(x) = U_mu(x) field(x + mu) for step 1, U_mu(x - mu)^dag field(x - mu) for step -1; mu spatial.

    links ``[mu, parity, site, 3, 3]``; field, out ``[time, parity, site, 3, column]``, the slices first,
    first + 1, ... of the lattice; all of one dtype, complex64 or complex128. Returns `out`, another array
    than `field`; raises InputError.
    """
    check_slice_shift(links, field, out, lattice, mu, step, first)
    sites, xp = lattice.sites_per_slice, array_module(field)
    for t in range(len(field)):
        start = (first + t) * sites
        rows = slice(start, start + sites)
        for parity in (EVEN, ODD):
            there = xp.asarray(lattice.neighbour(parity, mu, step)[rows] - start)
            if step == 1:
                matrices = links[mu, parity, rows]
            else:
                matrices = links[mu, 1 - parity, rows][there].conj().swapaxes(-1, -2)
            out[t, parity] = matrices @ field[t, 1 - parity][there]
    return out
