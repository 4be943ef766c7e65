"""Connected correlators from sources on a time slice, what low modes leave of them, and normalisation.

With G = M^-1 = (2 m + D)^-1, P_t the projection on a slice and a Hermitian operator O of
`stages.lqcd.spectroscopy.vector_currents`,

    C[t1, t2] = + Tr [P_t1 O G P_t2 O G],   C(t) = the mean of C[t0 + t, t0] over t0,

over colour and space, both parities: no minus sign, no factor of volume, charge or taste. Then the connected
part of -<J J> is the sum of q^2 C over flavours: the physical propagator is 2 G, which cancels the 1/4 of
tastes. By sources b with <b b^dag> = P_t0, and G^dag = epsilon G epsilon,

    C(t) = <G b| P_t0+t O' G O'^dag b>,   O' = epsilon O.

With low modes C = LL + rest: LL is exact over all sources (`stages.lqcd.spectroscopy.meson_fields`), the rest
is that estimate less the same one with G_L for G, on the same b (arXiv:hep-lat/0401011, hep-lat/0402002; for
HISQ arXiv:1812.03334). The sum is unbiased for modes of any accuracy, if both have the same vectors and
eigenvalues.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from types import ModuleType
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels import slice_products
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.kernels.fields import assign, zero_field
from stages.lqcd.kernels.gamma import COLOURS
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.noise import noise_vectors
from stages.lqcd.spectroscopy.low_propagator import LowPropagator, checked_modes
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, check_place, slice_sites
from stages.lqcd.spectroscopy.vector_currents import Current

Normalisation = Literal["slice", "site"]
"""'slice': its trace, of meson fields and `random_wall`. 'site': that over L^3, the mean of point sources."""


def normalised(correlator: NDArray, lattice: Lattice, given: Normalisation, wanted: Normalisation) -> NDArray:
    """A correlator of one normalisation in the other: 'slice' is L^3 times 'site'. Raises InputError."""
    for each in (given, wanted):
        if each not in ("slice", "site"):
            raise InputError(f"a correlator's normalisation is 'slice' or 'site', got {each!r}")
    power = (wanted == "slice") - (given == "slice")
    return correlator * float(2 * lattice.sites_per_slice) ** power


def wall_time(lattice: Lattice, label: str, seed: int, index: int) -> int:
    """Time slice of a random wall, drawn for each configuration: a function of (seed, label, index).

    T walls in a row have all slices, the first few far from each other; the draw moves all of them, so that
    each wall has every slice with the same probability.
    """
    times = lattice.time_extent
    bits = (times - 1).bit_length()
    spread = dict.fromkeys(times * int(f"{n:b}"[::-1].ljust(bits, "0"), 2) >> bits for n in range(1 << bits))
    drawn = int.from_bytes(sha256(f"walls of {seed} on {label}".encode()).digest()[:8], "big")
    return (list(spread)[index % times] + drawn) % times


def random_wall(lattice: Lattice, time: int, label: str, seed: int, index: int, xp: ModuleType = np) -> Array:
    """Sources b of one noise vector, complex128 ``[parity, site, 3, 3]``: a column for each colour.

    Z4 noise of (seed, configuration's `label`, index) on every site and colour of the slice, 0 elsewhere:
    the sum over columns of b b^dag is P_t0 in the mean, so that correlators estimate the slice trace. Raises
    InputError.
    """
    check_place(lattice, SourcePlace(time))
    here, source = slice_sites(lattice, time), zero_field((2, lattice.half_volume, 3, 3), complex, xp)
    for parity in (EVEN, ODD):
        noise = noise_vectors(lattice, parity, label, seed, [index], "z4", xp=xp)
        for colour in range(COLOURS):
            assign(source[parity, here, colour, colour], noise[here, colour, 0])
    return source


def antiquark_columns(operators: Sequence[str]) -> list[slice]:
    """Columns of the solutions for O epsilon b of each operator, after those for the 3 of b.

    The pion's are those of b: O epsilon = 1.
    """
    others = [label for label in operators if label != "G5-G5"]
    first = {label: COLOURS * n for n, label in enumerate(others, start=1)}
    return [slice(first.get(label, 0), first.get(label, 0) + COLOURS) for label in operators]


def wall_columns(operators: Sequence[str]) -> int:
    """Right-hand sides of a random wall for operators of these labels."""
    return max([COLOURS, *(columns.stop for columns in antiquark_columns(operators))])


def source_correlator(quark: Array, antiquark: Array, sink: Current, time: int) -> NDArray[np.complex128]:
    """C(t) by each column b, complex128 ``[N, t]`` on the host, t counted from the source's `time`.

    quark: G b, antiquark: G O'^dag b with O of the source (`Current.at_source`), ``[parity, site, 3, N]``.
    sink: O of the sink. The sum over the columns of a source has its normalisation.
    """
    check_place(sink.lattice, SourcePlace(time))
    total = np.zeros((quark.shape[-1], sink.lattice.time_extent), complex)
    for parity in (EVEN, ODD):
        image = sink.primed_to(parity, antiquark[parity ^ sink.hops])
        total += as_numpy(slice_products.slice_dots(quark[parity], image, sink.lattice))
    return np.roll(total, -time, axis=1)


class RestCorrelator(NamedTuple):
    """Estimates of C and of its LL by the same sources, complex128 ``[N, t]``, one for each column."""

    full: NDArray[np.complex128]
    low: NDArray[np.complex128]

    @property
    def rest(self) -> NDArray[np.complex128]:
        """What LL of all sources leaves."""
        return self.full - self.low


def rest_correlator(
    low: LowPropagator,
    mass: float,
    b: Array,
    quark: Array,
    antiquark: Array,
    sink: Current,
    source: Current,
    time: int,
) -> RestCorrelator:
    """The rest of C by sources b on the slice `time`: C(t) is LL + the mean of `rest`, summed over columns.

    b, quark = G b, antiquark = G `source.at_source(b)`: complex128 ``[parity, site, 3, N]``, at this mass.
    low: that of the meson fields that give LL.
    """
    checked_modes(low)
    parts = low.apply(mass, b), low.apply(mass, source.at_source(b))
    full, low_low = (source_correlator(*each, sink, time) for each in ((quark, antiquark), parts))
    return RestCorrelator(full, low_low)
