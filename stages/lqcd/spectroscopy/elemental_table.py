"""Elementals by momentum and displacement, also those that follow as adjoints from others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.displacement import reversed_word, steps_of
from stages.lqcd.spectroscopy.mesons import Momentum


@dataclass(frozen=True, eq=False)
class ElementalTable:
    """v_i^H exp(ipx) D v_j ``[time, momentum, displacement, i, j]``, an array in memory or in a store.

    momenta, displacements: those of the axes, as integers n (p = 2 pi n / L) and as words
    (`stages.lqcd.dirac.displacement`); extents: of the lattice, x y z t; eigenvectors: how many of those that
    the array has are taken, the lowest. Raises InputError for an array that is not of this shape.
    """

    values: NDArray[np.complex128]
    momenta: tuple[Momentum, ...]
    displacements: tuple[str, ...]
    extents: tuple[int, int, int, int]
    eigenvectors: int

    def __post_init__(self) -> None:
        shape, expected = self.values.shape, (self.extents[3], len(self.momenta), len(self.displacements))
        if len(shape) != 5 or shape[:3] != expected or min(shape[3:]) < self.eigenvectors:
            raise InputError(
                f"elementals of {expected[0]} time slices, {expected[1]} momenta, {expected[2]} "
                f"displacements and {self.eigenvectors} eigenvectors are needed, got shape {tuple(shape)}"
            )

    def vertices(
        self, time: int, momenta: Sequence[Momentum], words: Sequence[str]
    ) -> NDArray[np.complex128]:
        """Phi = V^H exp(-ipx) D V of operators of momentum p on a slice, ``[momentum, word, i, j]``.

        Each is the elemental of -p, or the adjoint of that of p along the path back. Raises InputError where
        neither is in the table.
        """
        k = self.eigenvectors
        table = np.asarray(self.values[time])[..., :k, :k]
        return np.stack([[self._vertex(table, momentum, word) for word in words] for momentum in momenta])

    def _vertex(self, table: NDArray, momentum: Momentum, word: str) -> NDArray[np.complex128]:
        opposite, back = tuple(-n for n in momentum), reversed_word(word)
        if opposite in self.momenta and word in self.displacements:
            return table[self.momenta.index(opposite), self.displacements.index(word)]
        if momentum in self.momenta and back in self.displacements:
            # D exp(-ipx) = exp(-ipd) exp(-ipx) D, d from the path's beginning to its end
            reverse = table[self.momenta.index(momentum), self.displacements.index(back)]
            return np.exp(1j * self._angle(momentum, word)) * reverse.conj().T
        raise InputError(
            f"a meson operator of momentum {list(momentum)} with displacement {word!r} needs the elementals "
            f"of momentum {list(opposite)} with it, or of {list(momentum)} with {back!r}: add them to the "
            f"elementals, which have momenta {[list(p) for p in self.momenta]} and displacements "
            f"{list(self.displacements)}"
        )

    def _angle(self, momentum: Momentum, word: str) -> float:
        """Phase p d of a path."""
        steps = (2 * np.pi * momentum[mu] / self.extents[mu] * step for mu, step in steps_of(word))
        return float(sum(steps))
