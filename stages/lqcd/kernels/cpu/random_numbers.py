"""Words of the generator for all sites at once, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike, NDArray

from stages.lqcd.kernels.dispatch import Array, array_module
from stages.lqcd.kernels.random_numbers import (
    COLOURS,
    GOLDEN,
    LOW,
    WORD,
    first_counter,
    philox4x32,
    roots_of,
    table_bits,
)
from stages.lqcd.lattice.geometry import Lattice

PIECE = 1 << 22
"""Elements drawn together."""


def noise(
    lattice: Lattice, parity: int, key: tuple[int, int], indices: Sequence[int], kind: str, dtype: DTypeLike
) -> NDArray:
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


def fill_random(block: Array, seed: int, draw: int) -> None:
    xp, elements, start = array_module(block), block.reshape(-1), first_counter(seed, draw)
    for first in range(0, elements.size, PIECE):
        count = min(PIECE, elements.size - first)
        z = xp.arange(first + 1, first + count + 1, dtype=np.uint64)
        z *= np.uint64(GOLDEN)
        z += start
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        piece = elements[first : first + count]
        piece.real = (z >> np.uint64(32)).astype(np.float64) * 2.0**-31 - 1
        piece.imag = (z & np.uint64(0xFFFFFFFF)).astype(np.float64) * 2.0**-31 - 1
