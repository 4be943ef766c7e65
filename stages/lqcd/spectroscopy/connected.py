"""Connected correlators from sources on a time slice, what low modes leave of them, and normalisation.

With G = M^-1 = (2 m + D)^-1, P_t the projection on a slice and Hermitian operators O, O'' of
`stages.lqcd.spectroscopy.vector_currents`,

    C[t1, t2] = + Tr [ P_t1 O G P_t2 O G ],   C(t) = the mean of C[t0 + t, t0] over t0,

over colour and space and both parities: no minus sign, no factor of volume, charge or taste. Then -<J J>
connected is the sum of q^2 C over flavours: the physical propagator is 2 G, which cancels the 1/4 of tastes.
With sources b, <b b^dag> = P_t0, and G^dag = epsilon G epsilon,

    C(t) = <G b| P_t0+t O' G O'^dag b>,   O' = epsilon O.

Low modes, C = LL + rest: LL is exact over all sources (`stages.lqcd.spectroscopy.meson_fields`), and the rest
is that estimate less the same one with G_L in the place of G, on the same b. It is unbiased for modes of any
accuracy, if vectors and eigenvalues of both are the same (low-mode averaging, arXiv:hep-lat/0401011,
hep-lat/0402002).
"""

from __future__ import annotations

from types import ModuleType
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.kernels import block_blas, slice_products
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.kernels.fields import assign, zero_field
from stages.lqcd.kernels.gamma import COLOURS
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice, T
from stages.lqcd.noise import noise_vectors
from stages.lqcd.spectroscopy.low_propagator import LowPropagator
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, check_place, slice_sites
from stages.lqcd.spectroscopy.vector_currents import Current, source_of

Normalisation = Literal["slice", "site"]
"""'slice': the trace over a slice, of meson fields and of `random_wall`. 'site': that over L^3, the mean over
points of the slice, of point sources and of the walls of `stages.lqcd.spectroscopy.staggered_mesons`."""


def normalised(correlator: NDArray, lattice: Lattice, given: Normalisation, wanted: Normalisation) -> NDArray:
    """A correlator of one normalisation in the other: C per site is C of the slice over L^3.

    Raises InputError.
    """
    for each in (given, wanted):
        if each not in ("slice", "site"):
            raise InputError(f"a correlator's normalisation is 'slice' or 'site', got {each!r}")
    sites = lattice.volume // lattice.extents[T]
    power = (given == "slice") - (wanted == "slice")
    return correlator / float(sites) ** power


def random_wall(
    lattice: Lattice, time: int, label: str, seed: int, number: int, xp: ModuleType = np
) -> Array:
    """Sources b of one noise vector, complex128 ``[parity, site, 3, 3]``: a column for each colour.

    Z4 noise of (seed, configuration's `label`, number) on every site and colour of the slice, 0 elsewhere:
    the sum over columns of b b^dag is P_t0 in the mean, so that correlators estimate the slice trace. Raises
    InputError.
    """
    check_place(lattice, SourcePlace(time))
    here, source = slice_sites(lattice, time), zero_field((2, lattice.half_volume, 3, 3), complex, xp)
    for parity in (EVEN, ODD):
        noise = noise_vectors(lattice, parity, label, seed, [number], "z4", xp=xp)
        for colour in range(COLOURS):
            assign(source[parity, here, colour, colour], noise[here, colour, 0])
    return source


def source_correlator(
    quark: Array, antiquark: Array, current: Current, lattice: Lattice, time: int
) -> NDArray[np.complex128]:
    """<G b| P O' G O''^dag b> of each column b, complex128 ``[N, t]`` on the host, t = 0 at the source.

    quark: G b; antiquark: G O''^dag b of the source's operator (`source_of`), ``[parity, site, 3, N]``.
    current: O, of the sink. The sum over the columns of a source has the source's normalisation.
    """
    total = np.zeros((quark.shape[-1], lattice.time_extent), complex)
    for parity in (EVEN, ODD):
        image = current.primed_to(parity, antiquark[parity ^ current.hops])
        total += as_numpy(slice_products.slice_dots(quark[parity], image, lattice))
    return np.roll(total, -time, axis=1)


class RestCorrelator(NamedTuple):
    """Estimates of the whole and of LL with the same sources, complex128 ``[N, t]``, one for each column."""

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
    """The rest of C(t) by sources b on the slice `time`; C(t) = LL + the mean of `rest` summed over columns.

    b, quark = G b, antiquark = G O^dag' b (`source_of`): complex128 ``[parity, site, 3, N]``, G at this mass.
    low: the modes, and their eigenvalues, of the meson fields that gave LL.
    """
    lattice = low.lattice
    parts = low.apply(mass, b), low.apply(mass, source_of(source, b))
    return RestCorrelator(
        source_correlator(quark, antiquark, sink, lattice, time),
        source_correlator(*parts, sink, lattice, time),
    )


def contact_estimate(contact: StaggeredDslash, b: Array, quark: Array) -> NDArray[np.complex128]:
    """<b| K G b> of each column, complex128 ``[N]``, an estimate of Tr P_t0 K G.

    contact: K of `stages.lqcd.spectroscopy.vector_currents.contact_term`; b, quark = G b: as for
    `rest_correlator`. C(0) of the conserved current lacks it.
    """
    total = np.zeros(b.shape[-1], complex)
    for parity in (EVEN, ODD):
        total += as_numpy(block_blas.dots(b[parity], contact.apply_to(parity, quark[1 - parity])))
    return total
