"""Elementals by momentum and displacement, also those that follow as adjoints from others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.dirac.displacement import reversed_word, steps_of
from stages.lattice.errors import InputError
from stages.spectroscopy.mesons import Momentum


@dataclass(frozen=True, eq=False)
class ElementalTable:
    """v_i^H exp(ipx) D v_j ``[time, momentum, displacement, i, j]``, an array in memory or in a store.

    momenta, displacements: those of the axes, as integers n (p = 2 pi n / L) and as words
    (`stages.dirac.displacement`); extents: of the lattice, x y z t. Raises InputError where they are not of
    the array's shape.
    """

    values: NDArray[np.complex128]
    momenta: tuple[Momentum, ...]
    displacements: tuple[str, ...]
    extents: tuple[int, int, int, int]

    def __post_init__(self) -> None:
        expected = (self.extents[3], len(self.momenta), len(self.displacements))
        if len(self.values.shape) != 5 or self.values.shape[:3] != expected:
            raise InputError(
                f"elementals of {expected[0]} time slices, {expected[1]} momenta and {expected[2]} "
                "displacements have shape (time, momentum, displacement, eigenvector, eigenvector), got "
                f"{self.values.shape}"
            )

    def vertices(self, momentum: Momentum, words: Sequence[str]) -> NDArray[np.complex128]:
        """Phi = V^H exp(-ipx) D V of an operator of momentum p, ``[word, time, i, j]``.

        It is the elemental of -p, or the adjoint of that of p along the path back. Raises InputError where
        neither is in the table.
        """
        return np.stack([self._vertex(momentum, word) for word in words])

    def _vertex(self, momentum: Momentum, word: str) -> NDArray[np.complex128]:
        opposite, back = tuple(-n for n in momentum), reversed_word(word)
        if opposite in self.momenta and word in self.displacements:
            return self._entry(opposite, word)
        if momentum in self.momenta and back in self.displacements:
            # D exp(-ipx) = exp(-ipd) exp(-ipx) D, d from the path's beginning to its end
            found = self._entry(momentum, back).conj().swapaxes(1, 2)
            return np.exp(1j * self._angle(momentum, word)) * found
        raise InputError(
            f"a meson operator of momentum {list(momentum)} with displacement {word!r} needs the elementals "
            f"of momentum {list(opposite)} with it, or of {list(momentum)} with {back!r}: add them to the "
            f"elementals, which have momenta {[list(p) for p in self.momenta]} and displacements "
            f"{list(self.displacements)}"
        )

    def _entry(self, momentum: Sequence[int], word: str) -> NDArray[np.complex128]:
        numbers = [list(p) for p in self.momenta].index(list(momentum)), self.displacements.index(word)
        return np.asarray(self.values[:, numbers[0], numbers[1]])

    def _angle(self, momentum: Momentum, word: str) -> float:
        """p d of a path."""
        steps = (2 * np.pi * momentum[mu] / self.extents[mu] * step for mu, step in steps_of(word))
        return float(sum(steps))
