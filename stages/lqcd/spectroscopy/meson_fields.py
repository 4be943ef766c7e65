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
from itertools import product

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels import slice_products
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.kernels.transfer import copy_to_host
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice, T
from stages.lqcd.spectroscopy.low_propagator import (
    LowPropagator,
    Ranks,
    checked_modes,
    checked_ranks,
    mode_weights,
)
from stages.lqcd.spectroscopy.mesons import Momentum, check_momenta, momentum_phases
from stages.lqcd.spectroscopy.quark_sources import SourcePlace
from stages.lqcd.spectroscopy.vector_currents import EPSILON, Current, HopCurrent, by_slice

REST: Momentum = (0, 0, 0)
ROWS = 64
"""Rows of meson fields that are weighted together."""


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
        ranks: Ranks | None = None,
    ) -> NDArray[np.complex128]:
        """C_LL of all sources, complex128 ``[source time, t]``, t counted from the source; a slice trace.

        sink, source: labels of currents. ranks: those of the modes that enter, from 0; all unless given. The
        mean over the first axis is C(t). Raises InputError for what is not there.
        """
        left, right = (self._number(self.labels, each, "current") for each in (sink, source))
        place = self._number(self.momenta, tuple(momentum), "momentum")
        numbers = checked_ranks(ranks, len(self.eigenvalues))
        weights = mode_weights(self.eigenvalues[numbers], mass)
        times = self.values.shape[3]
        total = np.zeros((times, times), complex)
        for first in range(0, len(numbers), ROWS):
            rows = numbers[first : first + ROWS]
            part = np.ix_(np.arange(2), np.arange(times), rows, numbers)
            a, b = (self.values[number, place][part] for number in (left, right))
            own = weights[..., first : first + ROWS]
            total += rows_traced(a, b, own, weights, (self.hops[left], self.hops[right]))
        return by_source_time(total)

    def _number(self, names: tuple, name: object, what: str) -> int:
        if name not in names:
            raise InputError(f"meson fields have no {what} {name!r}: they have {', '.join(map(str, names))}")
        return names.index(name)


def rows_traced(
    a: NDArray[np.complex128],
    b: NDArray[np.complex128],
    own: NDArray[np.float64],
    weights: NDArray[np.float64],
    hops: tuple[int, int],
) -> NDArray[np.complex128]:
    """The part of C_LL[t1, t2] of some rows of meson fields, a of the sink and b of the source.

    a, b: ``[parity, time, m, n]``. own, weights: `mode_weights` of the modes m and of all n. hops: of both.
    """
    times, total = a.shape[1], np.zeros((a.shape[1],) * 2, complex)
    for p, p_source in product((EVEN, ODD), repeat=2):
        # X[p, p2]_mn G[p2, p3]_n X^dag[p3, p4]_nm G[p4, p]_m
        g = own[p_source, p][:, None] * weights[p ^ hops[0], p_source ^ hops[1]]
        total += (a[p] * g).reshape(times, -1) @ b[p_source].reshape(times, -1).conj().T
    return total


def by_source_time(traces: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """C[t1, t2] as ``[source time, t]``, t counted from the source."""
    time = np.arange(len(traces))
    return traces[(time[:, None] + time) % len(time), time[:, None]]


def meson_fields(
    low: LowPropagator, currents: Sequence[Current], momenta: Sequence[Momentum] = (REST,), width: int = 16
) -> MesonFields:
    """Meson fields of all modes; arguments, and what it raises, as of `meson_field_blocks`."""
    checked_modes(low)
    shape = (len(currents), len(momenta), 2, low.dslash.lattice.time_extent, *2 * low.eigenvalues.shape)
    values = np.empty(shape, complex)
    for rows, columns, block in meson_field_blocks(low, currents, momenta, width):
        values[..., rows, columns] = block
    labels, hops = (tuple(each) for each in zip(*((c.label, c.hops) for c in currents), strict=True))
    return MesonFields(values, low.eigenvalues, labels, hops, tuple((x, y, z) for x, y, z in momenta))


def meson_field_blocks(
    low: LowPropagator,
    currents: Sequence[Current],
    momenta: Sequence[Momentum] = (REST,),
    width: int = 16,
    only: slice | None = None,
) -> Iterator[tuple[slice, slice, NDArray[np.complex128]]]:
    """Rows, columns and values of `MesonFields`, of all currents and momenta, in squares of `width` modes.

    momenta: p in units of 2 pi / L, of exp(-ipx) at the site x of the antiquark; of the conserved current at
    p != 0 that is not the Fourier sum of J(x). width: up to 64 on a GPU. Memory beside the modes: half fields
    of 2 (currents + 4) width columns, with `only` of 2 (rows + 3 width). only: the rows to make, all unless
    given; they are held meanwhile.
    Raises InputError for no momenta or currents, and for hops in time, which leave their slice.
    """
    check_momenta(momenta)
    if not currents or width < 1:
        raise InputError(f"meson fields need a current and width >= 1, got {len(currents)} and {width}")
    for current in currents:
        if isinstance(current, HopCurrent) and current.mu == T:
            raise InputError(f"{current.label} hops in time and has no meson field of a time slice")
    lattice = low.dslash.lattice
    still = only is None and not np.any(momenta)  # then X^dag is that of the modes exchanged
    held = None if only is None else [*low.blocks(width, only.start, only.stop)]
    phases = [_conjugate_phases(lattice, momentum, low.space.vectors) for momentum in momenta]
    groups = [range(len(currents))] if held is None else [range(n, n + 1) for n in range(len(currents))]
    for columns, right in low.blocks(width):
        made: dict[int, Array] = {}
        for group in groups:  # of currents whose images are there together
            images = [
                [currents[n].primed_to(p, right[p ^ currents[n].hops], sign=EPSILON[p]) for p in (EVEN, ODD)]
                for n in group
            ]
            for rows, left in held or low.blocks(width, columns.start if still else 0):
                shape = (lattice.time_extent, rows.stop - rows.start, columns.stop - columns.start)
                whole = (len(currents), len(momenta), 2, *shape)
                values = (
                    made.pop(rows.start) if rows.start in made else field_like(left[EVEN], whole, complex)
                )
                for (place, tables), p in product(enumerate(phases), (EVEN, ODD)):
                    bra = by_slice(left[p], lattice)
                    if tables:
                        bra = slice_products.weighted(bra, tables[p], field_like(bra))
                    for n, image in zip(group, images, strict=True):
                        slice_products.slice_gram(bra, by_slice(image[p], lattice), values[n, place, p])
                if group[-1] + 1 < len(currents):
                    made[rows.start] = values
                    continue
                block = copy_to_host(values)
                yield rows, columns, block
                if still and rows != columns:
                    turned = [block[n][:, ::-1] if c.hops else block[n] for n, c in enumerate(currents)]
                    yield columns, rows, np.stack(turned).conj().swapaxes(-1, -2)


def _conjugate_phases(lattice: Lattice, momentum: Momentum, like: Array) -> list[Array]:
    """Exp(ipx) of even and of odd sites, ``[time, 2, site]`` as of `by_slice`; none for p = 0."""
    if not any(momentum):
        return []
    phases = momentum_phases(lattice, SourcePlace(0), momentum).conj()
    by_parity = phases.reshape(lattice.time_extent, 2, 2, -1).swapaxes(0, 1)
    return [to_device_like(np.ascontiguousarray(table), like) for table in by_parity]
