"""Low-mode averaging: the exact part of quark loops that the lowest eigenvectors carry, for all masses.

With B = -D_eo D_oe on the even sites, B v_n = lambda_n v_n, |v_n| = 1, the odd partner of a mode is
w_n = D_oe v_n / sqrt(lambda_n), and (4 m^2 - D^2)^-1 restricted to the modes is
sum_n (v_n v_n^dag + w_n w_n^dag) / (lambda_n + 4 m^2) (arXiv:hep-lat/0401011). So

    J_mu(t) = sum_n J_n,mu(t) / (lambda_n + 4 m^2),
    J_n,mu(t) = - Im sum_{x in t} [ v_n(x)^dag U_mu(x) (D_oe v_n)(x + mu)
                                    + w_n(x)^dag U_mu(x) (D_eo w_n)(x + mu) ],

where the phases are in U_mu, and per parity (2/V) tr M^-1 = (4 m / V) sum_n 1 / (lambda_n + 4 m^2). Noise
then acts on the remainder, orthogonal to the modes: `stages.lqcd.estimators.trace.LoopTrace.deflation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.estimators.trace import CurrentLinks, Progress, no_progress
from stages.lqcd.kernels import basis, block_blas, lane_blas, slice_products
from stages.lqcd.kernels.dispatch import Array, as_numpy, to_device_like
from stages.lqcd.kernels.fields import contiguous, zeros_like
from stages.lqcd.lattice.geometry import EVEN, ODD
from stages.lqcd.solvers.deflation import has_odd_partner
from stages.lqcd.solvers.space import Space

SLAB = 16
"""Modes whose currents are computed together."""

SLAB_FIELDS = 4
"""Fields of a slab: modes, their partners, B times them, and one that is being made."""


class ModeCurrents(NamedTuple):
    """Currents of each mode, float64 on the host, by ascending eigenvalue; no mass enters."""

    eigenvalue: NDArray[np.float64]
    """lambda_n of B ``[k]``."""
    residual: NDArray[np.float64]
    """|B v_n - lambda_n v_n| ``[k]``."""
    current: NDArray[np.float64]
    """J_n,mu(t), the sum over both parities, ``[k, mu, t]``."""


def mode_currents(
    dslash: StaggeredDslash, links: CurrentLinks, modes: Space, progress: Progress = no_progress
) -> ModeCurrents:
    """The currents of the Ritz vectors in the span of `modes`, vectors of the even sites ``[site, 3, k]``.

    links: those of the current. Vectors that are not quite orthogonal, or whose B is not quite diagonal, as
    after rounding, span the same space: its Ritz pairs are the modes that the solver's deflation and the
    projection of noise know.
    """
    dslash = dslash.astype(np.complex128)
    lattice = dslash.lattice
    even_links, odd_links = links.of_both()
    norms2, current = block_blas.norms2, slice_products.one_link_current
    rotation, eigenvalues = modes.rotation, np.empty(len(modes))
    result = ModeCurrents(
        eigenvalues, np.empty(len(eigenvalues)), np.empty((len(eigenvalues), 4, lattice.time_extent))
    )
    for slab, v in _slabs(modes.vectors, rotation):
        hopped = dslash.apply_to(ODD, v)  # sqrt(lambda) w
        eigenvalues[slab] = as_numpy(norms2(hopped))  # from the Ritz values the lowest would lose digits
        back = dslash.apply_to(EVEN, hopped)  # -B v
        even = as_numpy(current(even_links, v, hopped, lattice, EVEN))
        odd = as_numpy(current(odd_links, hopped, back, lattice, ODD))
        result.current[slab] = even + odd * _partner_weight(eigenvalues[slab])[:, None, None]
        lane_blas.lane_add(back, v, to_device_like(eigenvalues[slab], v))
        result.residual[slab] = np.sqrt(as_numpy(norms2(back)))
        progress(slab.stop, len(eigenvalues))
    return result


def _slabs(vectors: Array, rotation: NDArray) -> Iterator[tuple[slice, Array]]:
    """V Q in slabs of columns, complex128 ``[site, 3, SLAB]`` each: never all of it at a time."""
    count = rotation.shape[1]
    for start in range(0, count, SLAB):
        slab = slice(start, min(start + SLAB, count))
        columns = zeros_like(vectors, (*vectors.shape[:-1], slab.stop - start), np.complex128)
        basis.add_combination(columns, vectors, contiguous(to_device_like(rotation[:, slab], vectors)))
        yield slab, columns


def low_mode_current(eigenvalue: ArrayLike, current: ArrayLike, mass: float) -> NDArray[np.float64]:
    """J_mu(t) of the modes at one mass, float64 ``[mu, t]``: sum_n J_n / (lambda_n + 4 m^2)."""
    return np.tensordot(1 / (np.asarray(eigenvalue) + 4 * mass**2), np.asarray(current), axes=1)


def low_mode_density(eigenvalue: ArrayLike, mass: float, volume: int) -> NDArray[np.float64]:
    """(2/V) tr M^-1 of the modes over the sites of a parity, ``[parity]``; the same where none is zero."""
    values = np.asarray(eigenvalue)
    weight = 4 * mass / volume / (values + 4 * mass**2)
    return np.array([weight.sum(), weight[has_odd_partner(values)].sum()])


def _partner_weight(eigenvalue: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 / lambda, that of D_oe v in a product of two odd partners; 0 for a mode that has none."""
    exists = has_odd_partner(eigenvalue)
    return exists / np.where(exists, eigenvalue, 1)
