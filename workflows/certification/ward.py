"""Ward identities: the charge of a conserved current changes by what the sources put in, slice by slice.

For M psi = b and M^dag phi = c, and the current of the symmetry psi -> e^(i alpha(x)) psi of the action,

    Q(t) - Q(t - 1) = sum_{x in t} [ phi^dag b - c^dag psi ](x),

exactly, on any gauge field. Naive staggered quarks: Q(t) = sum_x [ phi(x)^dag W_t(x) psi(x + t) + phi(x +
t)^dag W_t(x)^dag psi(x) ] with the operator's own links W, the one-link current of the loops. Wilson-clover
quarks: the point-split current, of single hops of the operator. The current of HISQ quarks in the loops is
one-link, too, and not conserved: it has no identity to check.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stages.lqcd.dirac.full_lattice import StaggeredOperator, StaggeredSchur
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.hisq import naive_links
from stages.lqcd.kernels import slice_products, wilson_dslash
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.kernels.fields import contiguous, field_like
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.even_odd import EvenOdd
from workflows.certification.check import DOUBLE, Check, Device, measured, skipped
from workflows.certification.fields import random_field, rough_links
from workflows.certification.symmetries import epsilon, gamma5, wilson_operator

LATTICE = Lattice((4, 2, 4, 6))
WIDTH, TOLERANCE, LIMIT = 3, 1e-12, 1e-10
FORWARD_T = 6
"""Number of the hop from x + t among the directions of a dslash."""


def ward_identities(device: Device) -> Iterator[Check]:
    """Checks of the conserved currents that there are."""
    about = "divergence of the charge by time slice"
    sources = f"{about} and phi^dag b - c^dag psi, of solved systems"
    for current, violation in (
        ("one-link current of naive staggered quarks", _staggered),
        ("point-split current of Wilson-clover quarks", _wilson),
    ):
        yield measured(f"Ward identity: {current}", sources, violation(device), LIMIT)
    yield skipped(
        "Ward identity: one-link current of HISQ quarks",
        about,
        "one-link currents of operators with three-link hops are not conserved; quarkline has no others",
    )


def _staggered(device: Device) -> float:
    links = naive_links(device.array(rough_links(71, LATTICE)), LATTICE, boundary="antiperiodic")
    M = StaggeredOperator(StaggeredDslash(links), 0.31)
    solve = EvenOdd(BatchedCG(TOLERANCE), StaggeredSchur).solve
    b, c = (random_field(seed, (*M.shape, WIDTH), DOUBLE, device.xp) for seed in (73, 79))
    psi, phi = solve(M, b).x, epsilon(solve(M, epsilon(c)).x)

    def current(bra: Array, ket: Array) -> NDArray[np.float64]:
        """-Im sum_x bra(x)^dag W_t(x) ket(x + t), ``[N, t]``."""
        parts = (
            slice_products.one_link_current(contiguous(links.fat[:, p]), bra[p], ket[1 - p], LATTICE, p)
            for p in (EVEN, ODD)
        )
        return sum((as_numpy(part)[:, 3] for part in parts), np.zeros(()))

    return _violation(current(psi, phi) - current(phi, psi), (_slice_dots(phi, b) - _slice_dots(c, psi)).imag)


def _slice_dots(x: Array, y: Array) -> NDArray[np.complex128]:
    """conj(x) . y of fields ``[parity, ...]`` by right-hand side and time slice, by the kernel."""
    parts = (slice_products.slice_dots(x[p], y[p], LATTICE) for p in (EVEN, ODD))
    return sum(map(as_numpy, parts), np.zeros((), complex))


def _wilson(device: Device) -> float:
    M = wilson_operator(rough_links(83, LATTICE), LATTICE, DOUBLE, device)
    b, c = (random_field(seed, (*M.shape, WIDTH), DOUBLE, device.xp) for seed in (89, 97))
    solve = EvenOdd(BiCGstab(TOLERANCE), WilsonSchur).solve
    psi, phi = solve(M, b).x, gamma5(solve(M, gamma5(c)).x)

    def current(bra: Array, ket: Array, sign: int) -> NDArray[np.complex128]:
        """sum_x bra(x)^dag (1 - sign gamma_t) U_t(x) ket(x + t), ``[N, t]``."""
        hop = field_like(ket)
        for parity in (EVEN, ODD):
            packed = M.dslash.packed[parity]
            wilson_dslash.wilson_hop(packed, FORWARD_T, ket[1 - parity], hop[parity], sign=sign)
        return _dots(bra, hop)

    # -(1/2) of both hops over the link (x, x + t); the one backward is the adjoint of one of M^dag
    charge = -0.5 * (current(phi, psi, 1) - current(psi, phi, -1).conj())
    return _violation(charge, _dots(phi, b) - _dots(c, psi))


def _dots(x: Array, y: Array) -> NDArray[np.complex128]:
    """conj(x) . y of fields ``[parity, ...]`` by right-hand side and time slice, by NumPy."""
    products = as_numpy(x).conj() * as_numpy(y)
    return products.reshape(2, LATTICE.time_extent, -1, x.shape[-1]).sum(axis=(0, 2)).T


def _violation(charge: NDArray, source: NDArray) -> float:
    """Largest difference of the two sides, relative to the charge."""
    divergence = charge - np.roll(charge, 1, axis=-1)
    return float(np.abs(divergence - source).max() / np.abs(charge).max())
