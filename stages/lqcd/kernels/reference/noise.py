"""Noise vectors on the sites of one parity, from the counters of the Philox generator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.lqcd.kernels.reference.philox import LOW, WORD, philox4x32
from stages.lqcd.lattice.geometry import Lattice

COLOURS = 3
ROOT_BITS = 16
Z2_ROOTS = np.array([1, -1], complex)
Z4_ROOTS = np.array([1, 1j, -1, -1j])


def noise(
    lattice: Lattice, parity: int, key: tuple[int, int], indices: Sequence[int], kind: str, dtype: DTypeLike
) -> NDArray:
    """Noise vectors ``[site, 3, len(indices)]``; kind and counters: `stages.lqcd.noise.vectors`."""
    sites = lattice.lexicographic(parity).astype(np.uint64)
    vectors = np.empty((len(sites), COLOURS, len(indices)), dtype)
    for column, index in enumerate(indices):
        words = _SiteWords(sites, key, index)
        vectors[:, :, column] = _gaussian(words) if kind == "gaussian" else _roots(words, roots_of(kind))
    return vectors


@dataclass(frozen=True)
class _SiteWords:
    """Words of one noise vector: ``words(n)`` are n components of each site, uint64 ``[site, n]``."""

    sites: NDArray[np.uint64]
    key: tuple[int, int]
    index: int

    def __call__(self, components: int) -> NDArray[np.uint64]:
        blocks = [self._block(number) for number in range(-(-components // 4))]
        return np.stack([word for block in blocks for word in block][:components], axis=-1)

    def _block(self, number: int) -> tuple[NDArray[np.uint64], ...]:
        constant = np.zeros_like(self.sites)
        low, high = self.sites & LOW, self.sites >> WORD
        return philox4x32(
            (low, high, constant + np.uint64(number), constant + np.uint64(self.index)), self.key
        )


def _roots(words: _SiteWords, table: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """The entry that the leading bits of each word name."""
    return table[words(COLOURS) >> np.uint64(32 - table_bits(table))]


def _gaussian(words: _SiteWords) -> NDArray[np.complex128]:
    """Box-Muller: sqrt(-log u) exp(2 pi i v), with u and v from components 2c and 2c + 1 of colour c."""
    uniform = (words(2 * COLOURS).astype(np.float64) + 0.5) * 2.0**-32
    radius, angle = np.sqrt(-np.log(uniform[:, 0::2])), 2.0 * np.pi * uniform[:, 1::2]
    return radius * (np.cos(angle) + 1j * np.sin(angle))


def roots_of(kind: str) -> NDArray[np.complex128]:
    """The values of 'z2', 'z4' or 'u1' noise, a power of two of them."""
    return roots_of_unity() if kind == "u1" else {"z2": Z2_ROOTS, "z4": Z4_ROOTS}[kind]


def table_bits(table: NDArray) -> int:
    """How many bits of a word name an entry."""
    return len(table).bit_length() - 1


@cache
def roots_of_unity() -> NDArray[np.complex128]:
    """exp(2 pi i k / 2^16) for k = 0 ... 2^16 - 1, each part correctly rounded, complex128; read-only.

    One quadrant by repeated rotation in 160-bit fixed point, the others by multiplication with i: no
    mathematical library takes part, so that the table has the same bits on every machine.
    """
    bits, quadrant = 160, 2**ROOT_BITS // 4
    one = 1 << bits
    step_cos, step_sin = _small_rotation(bits)
    points, cosine, sine = [], one, 0
    for _ in range(quadrant):
        points.append(complex(cosine / one, sine / one))
        cosine, sine = (
            (cosine * step_cos - sine * step_sin) >> bits,
            (sine * step_cos + cosine * step_sin) >> bits,
        )
    first = np.array(points)
    table = np.concatenate([first, 1j * first, -first, -1j * first])
    table.flags.writeable = False
    return table


def _small_rotation(bits: int) -> tuple[int, int]:
    """cos and sin of 2 pi / 2^16 as integers in units of 2^-bits, by Taylor series."""
    one = 1 << bits
    angle = (_PI_2_200 >> (200 - bits)) * 2 >> ROOT_BITS
    term, sums = one, [one, 0]
    for order in range(1, 24):
        term = (term * angle >> bits) // order
        sums[order % 2] += -term if order % 4 >= 2 else term
    return sums[0], sums[1]


_PI_2_200 = 0x3243F6A8885A308D313198A2E03707344A4093822299F31D008
"""floor(pi * 2^200)."""
