"""Sweeps compiled by Numba, the links of a direction and parity in parallel."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numba import prange, types
from numpy.typing import NDArray

from stages.lqcd.kernels.cpu import su3
from stages.lqcd.kernels.cpu.compiled import Kernel, array_type, compiled, inlined
from stages.lqcd.kernels.directions import NAIVE_DIRECTIONS, neighbour_table
from stages.lqcd.kernels.random_numbers import philox4x32
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice, shared_table

DOMAIN = np.uint64(1 << 31)
"""Top bit of the third counter word, so that no counter is one of the noise vectors'."""

ORIENTATION = np.uint64((1 << 32) - 1)
"""The 'attempt' that gives the orientation of a new SU(2) element."""


def heat_bath(links: NDArray, lattice: Lattice, beta: float, key: tuple[int, int], sweep: int) -> None:
    _sweep(links, lattice, False, beta / 3, *(np.uint64(word) for word in (*key, sweep)))


def over_relax(links: NDArray, lattice: Lattice) -> None:
    _sweep(links, lattice, True, 0.0, *(np.uint64(0),) * 3)


def _sweep(links: NDArray, lattice: Lattice, *how: float | np.uint64) -> None:
    """Update the links of each direction and parity in turn; how: the last arguments of `_update`."""
    kernel, operands = _compiled_update(), _operands(links, lattice)
    for mu in range(4):
        for parity in (EVEN, ODD):
            kernel(*operands, mu, parity, *how)


def _operands(links: NDArray, lattice: Lattice) -> tuple[NDArray, NDArray, NDArray]:
    """The links as ``[2 mu + parity, site, 9]`` and the tables of the lattice."""
    return links.reshape(8, lattice.half_volume, 9), _neighbours(lattice), _numbers(lattice)


@shared_table
def _neighbours(lattice: Lattice) -> NDArray[np.int32]:
    """Neighbours ``[parity, site, 2 mu + sign]``."""
    return np.stack([neighbour_table(lattice, parity, NAIVE_DIRECTIONS) for parity in (EVEN, ODD)])


@shared_table
def _numbers(lattice: Lattice) -> NDArray[np.uint64]:
    """Lexicographic site numbers ``[parity, site]``."""
    return np.stack([lattice.lexicographic(parity).astype(np.uint64) for parity in (EVEN, ODD)])


@inlined
def staple_sum(links, neighbours, mu, parity, site):
    """S = sum_nu [ U_nu(x) U_mu(x+nu) U_nu(x+mu)^dag + U_nu(x-nu)^dag U_mu(x-nu) U_nu(x-nu+mu) ]."""
    opposite = 1 - parity
    side = neighbours[parity, site, 2 * mu]
    across = links[2 * mu + opposite]
    zero = (0j, 0j, 0j)
    total = (zero, zero, zero)
    for nu in range(4):
        if nu != mu:
            same, other = links[2 * nu + parity], links[2 * nu + opposite]
            up, down = neighbours[parity, site, 2 * nu], neighbours[parity, site, 2 * nu + 1]
            above = su3.times(su3.load(same, site), su3.load(across, up))
            total = su3.plus(total, su3.times(above, su3.dagger(su3.load(other, side))))
            corner = neighbours[opposite, side, 2 * nu + 1]
            below = su3.times(su3.load(across, down), su3.load(same, corner))
            total = su3.plus(total, su3.times(su3.dagger(su3.load(other, down)), below))
    return total


philox = inlined(philox4x32)


@inlined
def uniforms(counter, attempt, key):
    """Four numbers of (0, 1), multiples of 2^-33, for counter (site, sweep, 3 * direction + subgroup)."""
    site, sweep, update = counter
    w0, w1, w2, w3 = philox((site, sweep, DOMAIN | np.uint64(update), attempt), key)
    step = 2.0**-32
    return (w0 + 0.5) * step, (w1 + 0.5) * step, (w2 + 0.5) * step, (w3 + 0.5) * step


@inlined
def kennedy_pendleton(alpha, counter, key):
    """Deviate x = 1 - h0 for h0 in [-1, 1] of the density sqrt(1 - h0^2) exp(alpha h0).

    Kennedy and Pendleton draw x from the density sqrt(x) exp(-alpha x) and accept it with sqrt(1 - x/2). At
    small alpha that is rare: there, h0 is drawn uniformly and accepted with sqrt(1 - h0^2) exp(-alpha x).
    """
    attempt = np.uint64(0)
    while True:
        r0, r1, r2, r3 = uniforms(counter, attempt, key)
        if alpha > 1:
            cosine = math.cos(2 * math.pi * r1)
            x = -(math.log(r0) + cosine * cosine * math.log(r2)) / alpha
            acceptance = 1 - 0.5 * x
        else:
            x = 2 * r0
            acceptance = x * (2 - x) * math.exp(-2 * alpha * x)
        if not r3 * r3 > acceptance:  # a NaN is accepted: it must not loop for ever
            return x
        attempt += np.uint64(1)


@inlined
def drawn(part, weight, counter, key):
    """Element g of SU(2) with the density exp(weight Re tr (g part)).

    Here g part = |part| h, with h from the heat bath.
    """
    norm = math.sqrt(su3.pair_square(part))
    x = kennedy_pendleton(2 * weight * norm, counter, key)
    r0, r1, _, _ = uniforms(counter, ORIENTATION, key)
    length = math.sqrt(x * (2 - x))
    transverse = 2 * length * math.sqrt(r0 * (1 - r0))
    angle = 2 * math.pi * r1
    a = complex(1 - x, length * (1 - 2 * r0))
    b = complex(transverse * math.cos(angle), transverse * math.sin(angle))
    return su3.pair_product((a, b), (part[0].conjugate() / norm, -part[1] / norm))


@inlined
def reflected(part):
    """Element g = (part^dag)^2 / |part|^2, for which Re tr (g part) = Re tr part."""
    square = su3.pair_square(part)
    inverse = (part[0].conjugate(), -part[1])
    return su3.pair_product(inverse, (inverse[0] / square, inverse[1] / square))


@inlined
def new_element(reflect, part, weight, counter, key):
    """A link's factor in one subgroup. One kernel for both kinds of sweep: it compiles in half the time."""
    if reflect:
        return reflected(part)
    return drawn(part, weight, counter, key)


def _update(low, high, links, neighbours, numbers, mu, parity, reflect, weight, key0, key1, sweep):
    """Multiply each link U in each subgroup in turn by the new element for the SU(2) part of U S^dag."""
    key = (key0, key1)
    matrices = links[2 * mu + parity]
    for site in prange(low, high):
        number = numbers[parity, site]
        u0, u1, u2 = su3.load(matrices, site)
        staples = su3.dagger(staple_sum(links, neighbours, mu, parity, site))
        r0, r1, r2 = su3.times((u0, u1, u2), staples)
        part = su3.pair_of(r0[0], r0[1], r1[0], r1[1])
        g = new_element(reflect, part, weight, (number, sweep, 3 * mu), key)
        u0, u1 = su3.pair_times_rows(g, u0, u1)
        r0, r1 = su3.pair_times_rows(g, r0, r1)
        part = su3.pair_of(r0[0], r0[2], r2[0], r2[2])
        g = new_element(reflect, part, weight, (number, sweep, 3 * mu + 1), key)
        u0, u2 = su3.pair_times_rows(g, u0, u2)
        r0, r2 = su3.pair_times_rows(g, r0, r2)
        part = su3.pair_of(r1[1], r1[2], r2[1], r2[2])
        g = new_element(reflect, part, weight, (number, sweep, 3 * mu + 2), key)
        u1, u2 = su3.pair_times_rows(g, u1, u2)
        su3.store(matrices, site, su3.in_su3(u0, u1))


@cache
def _compiled_update() -> Kernel:
    """Compiled on first use, not on import."""
    links, neighbours = array_type(complex, 3, writable=True), array_type(np.int32, 3)
    numbers, place, random = array_type(np.uint64, 2), [types.intp] * 2, [types.uint64] * 3
    signature = types.void(links, neighbours, numbers, *place, types.boolean, types.float64, *random)
    return compiled(_update, "heatbath", signature, lambda links, *others: links.shape[1])
