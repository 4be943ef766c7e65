"""Dense matrices of staggered quarks and their currents, written out from the links: the oracle of tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from stages.lqcd.gauge.hisq import StaggeredLinks
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from support.lexicographic import gauge_to_lexicographic


@dataclass(frozen=True)
class DenseStaggered:
    """Matrices on ``[parity, site, colour]``, of links ``[mu, x, 3, 3]``, x lexicographic, phases in them."""

    lattice: Lattice
    fat: NDArray
    long: NDArray
    thin: NDArray

    @classmethod
    def of(cls, links: StaggeredLinks) -> DenseStaggered:
        lattice = links.lattice
        fields = (
            np.moveaxis(gauge_to_lexicographic(each, lattice).reshape(lattice.volume, 4, 3, 3), 1, 0)
            for each in (links.fat, links.long, links.thin())
        )
        return cls(lattice, *fields)

    @property
    def coordinates(self) -> NDArray:
        """``[x, mu]``."""
        return np.indices(self.lattice.extents[::-1]).reshape(4, -1)[::-1].T

    def shift(self, mu: int, steps: int) -> NDArray:
        """Number of x + steps mu of every x."""
        there = self.coordinates.copy()
        there[:, mu] += steps
        x, y, z, t = np.moveaxis(there % self.lattice.extents, -1, 0)
        lx, ly, lz, _ = self.lattice.extents
        return ((t * lz + z) * ly + y) * lx + x

    def hop(self, links: NDArray, mu: int, steps: int, numbers: NDArray | float = 1.0) -> NDArray:
        """(S f)(x) = numbers(x) V_mu(x) f(x + steps mu)."""
        volume = self.lattice.volume
        matrix = np.zeros((volume, 3, volume, 3), complex)
        here = np.arange(volume)
        factors = np.broadcast_to(numbers, volume)[:, None, None]
        matrix[here, :, self.shift(mu, steps)] = factors * links[mu]
        return self._ordered(matrix)

    def diagonal(self, numbers: NDArray) -> NDArray:
        """The matrix of a number at each site x."""
        return np.diag(self._ordered(np.repeat(numbers, 3)))

    def operator(self, mass: float, angles: NDArray | float = 0.0) -> NDArray:
        """M with a U(1) phase exp(i angle_mu(x)) on each bond, angles ``[mu, x]``."""
        volume = self.lattice.volume
        angles = np.broadcast_to(angles, (4, volume))
        matrix = 2 * mass * np.eye(3 * volume, dtype=complex)
        for mu in range(4):
            three = self.passing(angles[mu], mu)
            for links, steps, angle in ((self.fat, 1, angles[mu]), (self.long, 3, three)):
                hop = self.hop(links, mu, steps, np.exp(1j * angle))
                matrix += hop - hop.conj().T
        return matrix

    def passing(self, w: NDArray, mu: int) -> NDArray:
        return w + w[self.shift(mu, 1)] + w[self.shift(mu, 2)]

    def bond_current(self, mu: int, w: NDArray) -> NDArray:
        """sum_x w(x) J_mu(x)."""
        hops = self.hop(self.fat, mu, 1, w) + self.hop(self.long, mu, 3, self.passing(w, mu))
        return hops + hops.conj().T

    def current(self, label: str) -> NDArray:
        """O of a label, by the formulas of the field's literature."""
        x, one = self.coordinates, np.ones(self.lattice.volume)
        epsilon = (-1.0) ** x.sum(axis=1)
        if label == "G5-G5":
            return self.diagonal(epsilon)
        mu = "XYZ".index(label[1])
        if label[0] == "C":
            return 0.5 * self.bond_current(mu, one)
        if label.endswith("1"):
            hop = self.hop(self.thin, mu, 1)
            return 0.5 * (hop + hop.conj().T)
        return self.diagonal(epsilon * (-1.0) ** x[:, mu])

    def on_slices(self) -> NDArray:
        """Diagonals of P_t, ``[time, parity site colour]``."""
        times = self._ordered(np.repeat(self.coordinates[:, 3], 3))
        return (times == np.arange(self.lattice.time_extent)[:, None]).astype(float)

    def trace(self, sink: NDArray, source: NDArray, inverse: NDArray) -> NDArray:
        """Tr [P_t0+t O G P_t0 O^dag G] ``[t0, t]``."""
        slices, times = self.on_slices(), np.arange(self.lattice.time_extent)
        left, right = (csr_array(each) @ inverse for each in (sink, source.conj().T))
        traces = slices @ (left.T * right) @ slices.T  # rows at t0, columns at t1
        return traces[times[:, None], (times[:, None] + times) % len(times)]

    def _ordered(self, array: NDArray) -> NDArray:
        """Lexicographic rows, and columns, by parity."""
        order = np.concatenate([self.lattice.lexicographic(parity) for parity in (EVEN, ODD)])
        index = (3 * order[:, None] + np.arange(3)).ravel()
        if array.ndim == 1:
            return array[index]
        return array.reshape(len(index), -1)[np.ix_(index, index)]
