"""Two-point functions of flavour-non-singlet mesons from propagators of one or of two degenerate quarks.

With O_G(x) = psibar_2(x) G psi_1(x), and S(x) the propagator from the source at x0, t = t0:

    C_G(p, t) = sum_x exp(-i p (x - x0)) <O_G(x, t0 + t) O_G(x0, t0)^dag>
              = -sum_x exp(-i p (x - x0)) tr [ G S(x) Gbar gamma_5 S(x)^dag gamma_5 ]

with Gbar = gamma_t G^dag gamma_t, where gamma5-Hermiticity has given the backward propagator,
gamma_5 S(x)^dag gamma_5. With a twisted mass that is the other flavour's: S and S^dag of one flavour make
charged mesons, S of one and S^dag of the other the connected part of neutral ones. The pion's is sum |S|^2;
all are positive at p = 0 where the transfer matrix is. The time is counted from the source and wraps around
the lattice: a propagator that crosses an antiperiodic boundary has a sign there, of which a meson holds two,
so that nothing is to be done about it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.kernels import slice_products
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import field_like
from stages.lqcd.kernels.gamma import COLOURS, COMPONENTS, SPINS
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.spectroscopy.operators import local_vertices
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, check_place

Momentum = tuple[int, int, int]
"""p in units of 2 pi / L of each direction."""


def meson_correlators(
    propagator: Array,
    lattice: Lattice,
    place: SourcePlace,
    gammas: Sequence[str],
    momenta: Sequence[Momentum],
    antiquark: Array | None = None,
) -> NDArray[np.complex128]:
    """C_G(p, t) of one source, complex128 ``[gamma, momentum, time]`` on the host, t = 0 at the source.

    propagator: ``[parity, site, 12, column]`` with 12 columns, 3 * spin + colour, or with 4, spin alone
    (`stages.lqcd.spectroscopy.quark_sources`). gammas: Dirac matrices by name, or sums such as
    'GammaX + GammaY'. antiquark: the propagator that comes back as its adjoint, unless it is the same. Raises
    InputError.
    """
    pairs = spin_pairs(propagator, lattice, place, momenta, antiquark)
    shifted = np.roll(pairs, -place.time, axis=1)
    correlators = np.empty((len(gammas), *shifted.shape[:2]), complex)
    for number, name in enumerate(gammas):
        sink, source = local_vertices(name)
        # -tr [(gamma5 G) S (Gbar gamma5) S^dag], with S = [b, c] and its conjugate [a, d]
        correlators[number] = -np.einsum("ab,cd,ptbcad->pt", sink, source, shifted, optimize=True)
    return correlators


def spin_pairs(
    propagator: Array,
    lattice: Lattice,
    place: SourcePlace,
    momenta: Sequence[Momentum],
    antiquark: Array | None = None,
) -> NDArray[np.complex128]:
    """sum_x exp(-i p (x - x0)) sum_colours S[b, c] S[a, d]^*, ``[momentum, time, b, c, a, d]``, on the host.

    The second S is that of the antiquark, if given.
    All correlators of spin matrices follow from it; it is one 16 x 16 matrix product per slice and momentum.
    """
    sites, times = lattice.sites_per_slice, lattice.time_extent
    check_place(lattice, place)
    check_momenta(momenta)
    *sides, columns = propagator.shape
    if sides != [2, lattice.half_volume, COMPONENTS]:
        raise InputError(
            f"a propagator on {lattice} is [2, {lattice.half_volume}, {COMPONENTS}, column], got "
            f"{list(propagator.shape)}: give all columns of one source"
        )
    if columns not in (SPINS, SPINS * COLOURS):
        raise InputError(
            f"mesons need a propagator of 12 columns (spin and colour) or 4 (spin), got {columns}: "
            "give the source as many"
        )
    spinors = propagator.reshape(2, times, sites, SPINS, COLOURS, SPINS, -1)
    others = None if antiquark is None else antiquark.reshape(spinors.shape)
    tables = np.stack([momentum_phases(lattice, place, momentum) for momentum in momenta])
    phases = to_device_like(tables, propagator)
    pairs = field_like(propagator, (len(momenta), times, SPINS**2, SPINS**2), complex)
    for time in range(times):
        other = None if others is None else others[:, time]
        slice_products.spin_pairs(spinors[:, time], phases[:, time], pairs[:, time], other)
    return as_numpy(pairs).reshape(len(momenta), times, *4 * (SPINS,))


def check_momenta(momenta: Sequence[Momentum]) -> None:
    """Raises InputError for no momenta, and for one that is not three numbers."""
    if not len(momenta) or any(np.shape(momentum) != (3,) for momentum in momenta):
        raise InputError(f"momenta are three integers each, such as [(0, 0, 0)], got {momenta!r}")


def momentum_phases(lattice: Lattice, place: SourcePlace, momentum: Momentum) -> NDArray[np.complex128]:
    """exp(-i p (x - x0)) ``[time, parity * site of a slice]``; x0 = 0 for a source without a point."""
    angle = np.zeros((2, lattice.half_volume))
    for mu, number in enumerate(momentum):
        start = place.point[mu] if place.point else 0
        for parity in (EVEN, ODD):
            distance = lattice.coordinates(parity)[:, mu] - start
            angle[parity] += 2 * np.pi * number / lattice.extents[mu] * distance
    by_time = angle.reshape(2, lattice.time_extent, -1).transpose(1, 0, 2)
    return np.exp(-1j * by_time.reshape(lattice.time_extent, -1))
