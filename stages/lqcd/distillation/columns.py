"""The columns of distillation's sources: which they are, in order, and their coefficients of eigenvectors.

A column is the field phi(x, t, spin) = sum_i v_i(x, t) rho(t, spin, i): in full distillation one rho is 1 and
all others are 0, in stochastic LapH rho is a noise vector cut to a subset. Coefficients are functions of the
column alone: no division into blocks can alter them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError, check_whole
from stages.lqcd.distillation.laph_dilution import LaphDilution, Subsets
from stages.lqcd.distillation.laph_noise import check_noise, laph_noise
from stages.lqcd.kernels.gamma import SPINS


@dataclass(frozen=True)
class FullColumns:
    """Every eigenvector (fastest) at every spin at each of the `source_times` (slowest): no noise.

    Raises InputError for a time outside `time_extent` and for no eigenvectors.
    """

    source_times: tuple[int, ...]
    time_extent: int
    eigenvectors: int

    def __post_init__(self) -> None:
        _check_eigenvectors(self.eigenvectors)
        for time in self.source_times:
            check_whole("the time of a source", time, 0)
            if not 0 <= time < self.time_extent:
                raise InputError(
                    f"a source at t = {time} is outside {self.time_extent} time slices: "
                    f"take 0 to {self.time_extent - 1}"
                )

    def __len__(self) -> int:
        return prod(self._extents)

    def times(self, block: range) -> list[int]:
        """The time slices on which a column of the block is not zero. Raises InputError."""
        return np.unique(self._indices(block)[0]).tolist()

    def on_slice(self, time: int, block: range) -> NDArray[np.complex128]:
        """Coefficients rho of a block on a time slice, complex128 ``[spin, eigenvector, column]``.

        Raises InputError.
        """
        rho = np.zeros((SPINS, self.eigenvectors, len(block)), complex)
        times, spins, vectors = self._indices(block)
        rho[spins, vectors, np.arange(len(block))] = times == time
        return rho

    @property
    def _extents(self) -> tuple[int, int, int]:
        return len(self.source_times), SPINS, self.eigenvectors

    def _indices(self, numbers: Sequence[int]) -> NDArray[np.int64]:
        """Time, spin and eigenvector ``[3, number]``."""
        indices = _unravelled(numbers, self._extents)
        indices[0] = np.array(self.source_times)[indices[0]]
        return indices


@dataclass(frozen=True)
class StochasticColumns:
    """Diluted noise P_d rho_n for each of the `sources`.

    Sources (slowest) are pairs of a subset of times and the number n of a noise vector; then by subsets of
    spins and of eigenvectors (fastest), as the dilution says.

    label, seed, kind: the configuration's and the noise's (`stages.lqcd.distillation.laph_noise`). Raises
    InputError for a dilution that does not divide, and for sources and noise that there are not.
    """

    sources: tuple[tuple[int, int], ...]
    dilution: LaphDilution
    time_extent: int
    eigenvectors: int
    label: str
    seed: int
    kind: str
    subsets: Subsets = field(init=False)

    def __post_init__(self) -> None:
        _check_eigenvectors(self.eigenvectors)
        subsets = self.dilution.subsets(self.time_extent, self.eigenvectors)
        for time, noise in self.sources:
            check_noise(noise, self.kind)
            check_whole("the time of a source", time, 0)
            if not 0 <= time < subsets.time:
                raise InputError(
                    f"a source at t = {time} is none of the {subsets.time} subsets of times that "
                    f"dilution.time = {self.dilution.time} makes: take 0 to {subsets.time - 1}"
                )
        object.__setattr__(self, "subsets", subsets)

    def __len__(self) -> int:
        return prod(self._extents)

    def times(self, block: range) -> list[int]:
        times = np.arange(self.time_extent)
        return times[np.isin(times % self.subsets.time, self._indices(block)[0])].tolist()

    def on_slice(self, time: int, block: range) -> NDArray[np.complex128]:
        rho = np.zeros((SPINS, self.eigenvectors, len(block)), complex)
        indices = self._indices(block)
        columns = np.flatnonzero(indices[0] == time % self.subsets.time)
        noise = {number: self._noise(number, time) for number in np.unique(indices[1, columns]).tolist()}
        for position in columns.tolist():
            _, number, spin, vector = indices[:, position].tolist()
            subset = np.s_[spin :: self.subsets.spin, vector :: self.subsets.eigenvector]
            rho[..., position][subset] = noise[number][subset]
        return rho

    @property
    def _extents(self) -> tuple[int, int, int]:
        return len(self.sources), self.subsets.spin, self.subsets.eigenvector

    def _indices(self, numbers: Sequence[int]) -> NDArray[np.int64]:
        """Subset of times, noise vector, subsets of spins and of eigenvectors ``[4, number]``."""
        source, spin, vector = _unravelled(numbers, self._extents)
        time, noise = np.array(self.sources, np.int64).T[:, source]
        return np.stack([time, noise, spin, vector])

    def _noise(self, number: int, time: int) -> NDArray[np.complex128]:
        """Noise rho before dilution on a slice, ``[spin, eigenvector]``."""
        return laph_noise(self.label, self.seed, number, [time], self.eigenvectors, self.kind)[0]


Columns = FullColumns | StochasticColumns
"""Columns by number, from 0; a block is a range of these."""


def _check_eigenvectors(number: int) -> None:
    check_whole("the number of eigenvectors of columns", number, 1)


def _unravelled(numbers: Sequence[int], extents: tuple[int, ...]) -> NDArray[np.int64]:
    for number in numbers:
        if not 0 <= number < prod(extents):
            raise InputError(f"there are {prod(extents)} columns, numbered from 0, got column {number}")
    return np.stack(np.unravel_index(np.array(numbers, np.int64), extents))
