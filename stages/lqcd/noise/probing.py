"""Hierarchical probing: Hadamard vectors over nested colourings of one parity's sites (arXiv:1302.4018).

A site has a code of bits, the coarsest colouring first; its colour at level j is the code's first j bits.
Probe k is h_k(x) = (-1)^(number of bits common to k and the code of x), the first bit of k paired with the
first of the code. The mean over the first 2^j probes of (h_k eta)^dag K (h_k eta) then holds no pair of sites
of different colour at level j, whatever the noise eta: their noise is gone, as if each colour had been solved
for alone. More probes refine a mean and repeat none, which dilution cannot do.

Bits come in octaves: octave i tells positions modulo 2^(i+1) apart that agree modulo 2^i, for the directions
whose extent 2^(i+1) divides. Its first bit is the parity of the coordinates' bits, as in a red-black
colouring, then come sums of pairs, then one coordinate alone. In the first octave the parity is that of the
sublattice. There two bits separate all pairs at distance sqrt(2), a third all others but those with equal
coordinates modulo 2. An odd factor of an extent is never cut: colours repeat along it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels import random_numbers as kernels
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.lattice.geometry import Lattice


def levels(lattice: Lattice) -> int:
    """Number of bits that the sites of one parity have: up to 2^levels probes differ."""
    return sum(len(directions) for directions in _octaves(lattice)) - 1


def check_probes(count: int, lattice: Lattice) -> None:
    """Raises InputError unless `count` is a power of two, which completes a colouring, and not too many."""
    most = 2 ** levels(lattice)
    if count < 1 or count & (count - 1):
        raise InputError(
            f"the number of probes must be a power of two, got {count}: "
            f"take {2 ** max(count, 1).bit_length() // 2} or {2 ** max(count, 1).bit_length()}"
        )
    if count > most:
        raise InputError(
            f"{count} probes, but nested colourings of the lattice {lattice} end at {most}: take at most that"
        )


def colours(lattice: Lattice, parity: int) -> NDArray[np.int64]:
    """The code of each site, ``[site]``: the coarsest colouring's bit is bit 0, the next one bit 1, ..."""
    code, bit = np.zeros(lattice.half_volume, np.int64), 0
    coordinates = lattice.coordinates(parity).T
    for octave, directions in enumerate(_octaves(lattice)):
        digits = [coordinates[mu].astype(np.int64) >> octave & 1 for mu in directions]
        first, *others = digits
        bits = [first ^ other for other in others[: len(digits) - 2]] + [first]
        if octave > 0 and len(digits) > 1:
            bits.insert(0, np.bitwise_xor.reduce(digits))
        for value in bits:
            code |= value << bit
            bit += 1
    return code


def hadamard_signs(code: NDArray[np.int64], probes: Sequence[int]) -> NDArray[np.float64]:
    """h_k(x) of each site and probe, +-1, ``[site, len(probes)]``; probe 0 is 1 everywhere."""
    common = code[:, None] & np.asarray(probes, np.int64)
    return 1.0 - 2.0 * (np.bitwise_count(common) & 1)


def probed(noise: Array, lattice: Lattice, parity: int, probes: Sequence[int]) -> Array:
    """h_k eta_n of noise ``[site, 3, N]`` on `parity`: ``[site, 3, N * len(probes)]``, probes fastest."""
    if list(probes) == [0]:
        return noise
    return kernels.signed(noise, hadamard_signs(colours(lattice, parity), probes))


def _octaves(lattice: Lattice) -> list[list[int]]:
    """The directions whose extent is divisible by 2, by 4, by 8, ..., until there are none."""
    octaves = []
    for octave in range(max(lattice.extents).bit_length()):
        directions = [mu for mu, extent in enumerate(lattice.extents) if extent % 2 ** (octave + 1) == 0]
        if directions:
            octaves.append(directions)
    return octaves
