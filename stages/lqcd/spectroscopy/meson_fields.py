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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.eigen.memory import available_bytes
from stages.lqcd.kernels import slice_products
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import assign, empty_rows, field_like
from stages.lqcd.kernels.gamma import COLOURS
from stages.lqcd.kernels.transfer import copy_to_host
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice, T
from stages.lqcd.lattice.sizes import half_field_bytes
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
SHARE = 0.9
"""Of free memory, that rows of meson fields and their modes may take."""


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
        total: Any = 0
        for rows in np.array_split(np.arange(len(numbers)), range(ROWS, len(numbers), ROWS)):
            square = np.ix_(numbers[rows], numbers)
            a, b = (self.values[each, place][..., *square] for each in (left, right))
            hops = self.hops[left], self.hops[right]
            total = total + rows_traced(a, b, weights[..., rows], weights, hops)
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
    """Meson fields of all modes; arguments, and what it raises, as of `meson_field_rows`."""
    checked_modes(low)
    values = meson_field_rows(low, currents, momenta, width)
    labels, hops = (tuple(each) for each in zip(*((c.label, c.hops) for c in currents), strict=True))
    return MesonFields(values, low.eigenvalues, labels, hops, tuple((x, y, z) for x, y, z in momenta))


def meson_field_rows(
    low: LowPropagator,
    currents: Sequence[Current],
    momenta: Sequence[Momentum] = (REST,),
    width: int = 16,
    rows: range | None = None,
    held: int | None = None,
    report: Callable[[int, int], object] = lambda done, rows: None,
) -> NDArray[np.complex128]:
    """Rows of `MesonFields`, complex128 ``[current, momentum, parity, time, row, mode]``, all unless given.

    momenta: p in units of 2 pi / L, of exp(-ipx) at the site x of the antiquark; of the conserved current at
    p != 0 that is not the Fourier sum of J(x). width: of blocks of modes, up to 64 on a GPU. held: rows whose
    modes v and w are held in double at a time, as many as fit into free memory unless given: images of a
    block of columns are made once for all of them. report: called with rows that are done, and all.
    Raises InputError for no momenta or currents, and for hops in time, which leave their slice.
    """
    check_momenta(momenta)
    if not currents or width < 1:
        raise InputError(f"meson fields need a current and width >= 1, got {len(currents)} and {width}")
    for current in currents:
        if isinstance(current, HopCurrent):
            if current.mu == T:
                raise InputError(f"{current.label} hops in time and has no meson field of a time slice")
            current.dslash.pack()  # before free memory is looked at
    vectors, lattice, modes = low.space.vectors, low.dslash.lattice, len(low.eigenvalues)
    chosen = range(modes) if rows is None else rows
    shape = (len(currents), len(momenta), 2, lattice.time_extent, len(chosen), modes)
    values = empty_rows(vectors, shape, complex, 0)  # no field: of GPUs on the first
    phases = [_phases(lattice, momentum, vectors) for momentum in momenta]
    step = max(width, _fitting(low, width, len(chosen)) if held is None else held)
    for first in range(0, len(chosen), step):
        _fill(values, low, currents, phases, width, chosen, chosen[first : first + step], report)
    return copy_to_host(values)


def _fill(
    values: Array,
    low: LowPropagator,
    currents: Sequence[Current],
    phases: Sequence[list[Array]],
    width: int,
    chosen: range,
    rows: range,
    report: Callable[[int, int], object],
) -> None:
    """Meson fields of rows that are held together, in the values of the chosen ones.

    At rest X^dag is X of the modes exchanged: of columns that are chosen rows, too, each product is made
    once.
    """
    lattice, modes, still = low.dslash.lattice, len(low.eigenvalues), not any(phases)
    held, done = [*low.blocks(width, rows.start, rows.stop)], 0
    ends = (0, chosen.start if still else rows.start), (rows.stop, chosen.stop), (chosen.stop, modes)
    total = len(rows) + sum(end - start for start, end in ends)
    for columns, right in chain(held, *(low.blocks(width, *each) for each in ends)):
        inside, mirrored = still and columns.start in rows, still and columns.start in chosen
        for n, p in product(range(len(currents)), (EVEN, ODD)):
            hops = currents[n].hops
            if inside and hops and p == ODD:
                continue  # all of it is the mirror image of p = EVEN
            plain = by_slice(currents[n].primed_to(p, right[p ^ hops], sign=EPSILON[p]), lattice)
            for place, tables in enumerate(phases):
                image = slice_products.weighted(plain, tables[p], field_like(plain)) if tables else plain
                for own, left in held:
                    if inside and not hops and own.start < columns.start:
                        continue
                    bra = by_slice(left[p], lattice)
                    block = empty_rows(bra, (len(bra), bra.shape[-1], image.shape[-1]), complex, 0)
                    slice_products.slice_gram(bra, image, block)
                    assign(values[n, place, p][:, _from(chosen.start, own), columns], block)
                    if mirrored and (hops or own != columns):
                        other = values[n, place, p ^ hops][:, _from(chosen.start, columns), own]
                        slice_products.slice_adjoint(block, other)
        done += columns.stop - columns.start
        report(rows.start - chosen.start + len(rows) * done // total, len(chosen))


def _from(first: int, numbers: slice) -> slice:
    return slice(numbers.start - first, numbers.stop - first)


def _fitting(low: LowPropagator, width: int, rows: int) -> int:
    """Rows, at most so many, whose modes fit beside an image, and beside columns that are none of them."""
    mode = 2 * half_field_bytes(low.dslash.lattice, COLOURS)
    room = int(SHARE * available_bytes(low.dslash.xp)) // mode - width
    return rows if rows <= room else (room - width) // width * width


def _phases(lattice: Lattice, momentum: Momentum, like: Array) -> list[Array]:
    """Exp(-ipx) of even and of odd sites, ``[time, 2, site]`` as of `by_slice`; none for p = 0."""
    if not any(momentum):
        return []
    phases = momentum_phases(lattice, SourcePlace(0), momentum)
    by_parity = phases.reshape(lattice.time_extent, 2, 2, -1).swapaxes(0, 1)
    return [to_device_like(np.ascontiguousarray(table), like) for table in by_parity]
