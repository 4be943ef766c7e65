"""Meson fields of low modes, and the connected correlators of all sources that follow at any mass.

With the even modes v_n, their odd partners w_n (`stages.lqcd.spectroscopy.low_propagator`), the projection
P_t on a slice, an operator O and a momentum p, the meson field is

    X_t[m, n] = phi_m^dag P_t exp(-i p x) O phi_n,   phi = v on even sites, w on odd ones:

of a local O that of v v and of w w, of one with hops that of v w and of w v. Denominators are not in it, so
that every mass is a set of weights; modes of eigenvalue - i sqrt(lambda) are sums and differences of the same
two. With G_L in that basis, and X^dag at the source,

    C_LL[t1, t2] = Tr [ P_t1 exp(-ipx) O G_L P_t2 (exp(-ipx) O)^dag G_L ]

is a product of matrices ``[t, m n]`` (arXiv:hep-lat/0401011, hep-lat/0505023).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels import slice_products
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice, T
from stages.lqcd.spectroscopy.low_propagator import WIDTH, LowPropagator, checked_ranks, mode_weights
from stages.lqcd.spectroscopy.mesons import Momentum, check_momenta
from stages.lqcd.spectroscopy.vector_currents import EPSILON, Current, HopCurrent, by_slice, site_table

REST: Momentum = (0, 0, 0)
ROWS = 64
"""Rows of meson fields that are weighted together."""


class MesonFieldBlock(NamedTuple):
    """Rows m and columns n of meson fields, complex128 ``[current, momentum, parity, time, m, n]``, host."""

    rows: slice
    columns: slice
    values: NDArray[np.complex128]


@dataclass(frozen=True)
class MesonFields:
    """Meson fields of a configuration.

    values: X, complex128 ``[current, momentum, parity, time, m, n]`` on the host; parity: that of the left
    mode. eigenvalues: lambda_n, float64 ``[n]``. hops: those of each current, 0 or 1.
    """

    values: NDArray[np.complex128]
    eigenvalues: NDArray[np.float64]
    labels: tuple[str, ...]
    hops: tuple[int, ...]
    momenta: tuple[Momentum, ...] = (REST,)

    def low_low(
        self,
        sink: str,
        source: str,
        mass: float,
        momentum: Momentum = REST,
        ranks: Sequence[int] | NDArray[np.integer] | None = None,
    ) -> NDArray[np.complex128]:
        """C_LL of all sources, complex128 ``[source time, t]``, t counted from the source; a slice trace.

        sink, source: labels of currents. ranks: those of the modes that enter, from 0; all unless given. The
        mean over the first axis is C(t). Raises InputError for what is not there.
        """
        left, right = (self._number(self.labels, each, "current") for each in (sink, source))
        place = self._number(self.momenta, tuple(momentum), "momentum")
        chosen = np.arange(len(self.eigenvalues)) if ranks is None else ranks
        numbers = checked_ranks(chosen, len(self.eigenvalues))
        weights = mode_weights(self.eigenvalues[numbers], mass)
        times = self.values.shape[3]
        total = np.zeros((times, times), complex)
        for first in range(0, len(numbers), ROWS):
            rows = numbers[first : first + ROWS]
            part = np.ix_(np.arange(2), np.arange(times), rows, numbers)
            a, b = (self.values[number, place][part] for number in (left, right))
            own = weights[..., first : first + ROWS, None]
            for p in (EVEN, ODD):
                for p_source in (EVEN, ODD):
                    # X[p, p2]_mn G[p2, p3]_n X^dag[p3, p4]_nm G[p4, p]_m
                    n_weight = weights[p ^ self.hops[left], p_source ^ self.hops[right]]
                    weighted = a[p] * (own[p_source, p] * n_weight)
                    total += weighted.reshape(times, -1) @ b[p_source].reshape(times, -1).conj().T
        time = np.arange(times)
        return total[(time[:, None] + time) % times, time[:, None]]

    def _number(self, names: tuple, name: object, what: str) -> int:
        if name not in names:
            raise InputError(f"meson fields have no {what} {name!r}: they have {', '.join(map(str, names))}")
        return names.index(name)


def meson_fields(
    low: LowPropagator,
    currents: Sequence[Current],
    momenta: Sequence[Momentum] = (REST,),
    width: int = WIDTH,
) -> MesonFields:
    """Meson fields of all currents and momenta, all modes; arguments as of `meson_field_blocks`."""
    shape = (len(currents), len(momenta), 2, low.lattice.time_extent, len(low), len(low))
    values = np.empty(shape, complex)
    for rows, columns, block in meson_field_blocks(low, currents, momenta, width):
        values[..., rows, columns] = block
    labels, hops = (tuple(each) for each in zip(*((c.label, c.hops) for c in currents), strict=True))
    return MesonFields(values, low.eigenvalues, labels, hops, tuple((p[0], p[1], p[2]) for p in momenta))


def meson_field_blocks(
    low: LowPropagator,
    currents: Sequence[Current],
    momenta: Sequence[Momentum] = (REST,),
    width: int = WIDTH,
) -> Iterator[MesonFieldBlock]:
    """Meson fields in squares of `width` modes: D and O are applied once to each block of right modes.

    momenta: p in units of 2 pi / L, of exp(-ipx) at the site x of the antiquark, which for the conserved
    current at p != 0 is not the Fourier sum of J(x). Memory beside the modes: 2 (currents + 3) blocks of half
    fields. Raises InputError for momenta that are none, no currents, and hops in time, which no slice holds.
    """
    check_momenta(momenta)
    if not currents:
        raise InputError("meson fields need at least one current")
    for current in currents:
        if isinstance(current, HopCurrent) and current.mu == T:
            raise InputError(f"{current.label} hops in time and has no meson field of a time slice")
    lattice = low.lattice
    phases = [_conjugate_phases(lattice, momentum) for momentum in momenta]
    for columns, right in low.blocks(width):
        images = [[c.primed_to(p, right[p ^ c.hops]) for p in (EVEN, ODD)] for c in currents]
        for rows, left in low.blocks(width):
            sizes = rows.stop - rows.start, columns.stop - columns.start
            values = np.empty((len(currents), len(momenta), 2, lattice.time_extent, *sizes), complex)
            gram = field_like(left[EVEN], values.shape[3:], complex)
            for place, p in ((place, p) for place in range(len(momenta)) for p in (EVEN, ODD)):
                bra = _moved(by_slice(left[p], lattice), phases[place], p)
                for number in range(len(currents)):
                    slice_products.slice_gram(bra, by_slice(images[number][p], lattice), gram)
                    values[number, place, p] = EPSILON[p] * as_numpy(gram)
            yield MesonFieldBlock(rows, columns, values)


def _moved(bra: Array, phases: NDArray[np.complex128] | None, parity: int) -> Array:
    """Exp(ipx) times vectors by slice, for a product that conjugates them."""
    if phases is None:
        return bra
    return slice_products.weighted(bra, to_device_like(phases[parity], bra), field_like(bra))


def _conjugate_phases(lattice: Lattice, momentum: Momentum) -> NDArray[np.complex128] | None:
    """Exp(ipx) ``[parity, time, 2, site]`` as `site_table` has them; None for p = 0."""
    if not any(momentum):
        return None
    p = 2 * np.pi * np.array(momentum) / lattice.extents[:T]
    angles = [lattice.coordinates(parity)[:, :T] @ p for parity in (EVEN, ODD)]
    return np.stack([site_table(np.exp(1j * angle), lattice) for angle in angles])
