"""Meson two-point functions from perambulators and elementals (distillation, arXiv:0905.2160).

Quark fields are smeared by V V^H, the eigenvectors of a time slice being the columns of V. An operator is

    O(p, t) = sum_x exp(-ipx) psibar_2 V V^H G D V V^H psi_1 = (psibar_2 V) G Phi(t) (V^H psi_1)

or a sum of such terms, with Phi = V^H exp(-ipx) D V and D a covariant displacement. With perambulators
tau(t, t0) = V(t)^H M^-1 V(t0), and tau(t0, t) = gamma5 tau(t, t0)^dag gamma5,

    C_AB(p, t) = <O_A(p, t0 + t) O_B(p, t0)^dag>
               = -tr [ gamma5 G_A Phi_A(t0 + t) tau Gbar_B gamma5 Phi_B(t0)^dag tau^dag ]

where Gbar = gamma_t G^dag gamma_t. Signs and normalisation are those of `stages.spectroscopy.mesons`, but
the source is all of a time slice: with all eigenvectors C_GG(p, t) is the sum of the C_G(p, t) there over the
points of the source's slice. Quark-line connected parts only.

Stochastic LapH (arXiv:1104.3870) has tau = sum_d c_d rho_d^H in the mean over noise, with c_d the sink
projection of the solution whose source is V rho_d, and takes another noise for each of the two quark lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.kernels.dispatch import Array, array_module, to_host
from stages.kernels.gamma import SPINS
from stages.lattice.errors import InputError
from stages.spectroscopy.mesons import vertices
from stages.spectroscopy.operators import MesonOperator, operator_vertices

PAIRS = SPINS**2


class QuarkLine(NamedTuple):
    """Sink projections of solutions, and the coefficients of their sources on the source's slice."""

    projections: Array
    """c ``[time, spin, eigenvector, column]``."""
    rho: Array
    """``[spin, eigenvector, column]``."""


def perambulator_pairs(perambulator: Array, sinks: Array, sources: Array) -> NDArray[np.complex128]:
    """sum over eigenvectors of (Phi_A tau)[b, c] (tau Phi_B)[a, d]^*, all spins open, on the host.

    perambulator: tau from one source time ``[time, spin, i, spin of the source, j]``; sinks: Phi
    ``[word, time, i, j]`` on the slices of tau; sources: Phi on the source's ``[word, i, j]``. The result is
    complex128 ``[time, word A, word B, b, c, a, d]``, from which all correlators follow. Raises InputError.
    """
    times, k = len(perambulator), sources.shape[-1]
    _check_shape("a perambulator", perambulator, (times, SPINS, k, SPINS, k), sinks)
    xp, words = array_module(perambulator), len(sources)
    pairs = xp.empty((times, words * PAIRS, words * PAIRS), complex)
    for time, tau in enumerate(perambulator):
        left = xp.stack([xp.tensordot(phi, tau, (1, 1)).transpose(1, 2, 0, 3) for phi in sinks[:, time]])
        right = xp.stack([(tau @ phi).transpose(0, 2, 1, 3) for phi in sources])
        xp.matmul(left.reshape(-1, k**2), right.conj().reshape(-1, k**2).T, out=pairs[time])
    open_spins = to_host(pairs).reshape(times, words, SPINS, SPINS, words, SPINS, SPINS)
    return open_spins.transpose(0, 1, 4, 2, 3, 5, 6)


def stochastic_pairs(
    quark: QuarkLine, antiquark: QuarkLine, sinks: Array, sources: Array
) -> NDArray[np.complex128]:
    """An estimate of `perambulator_pairs` from two quark lines of independent noise.

    The first is tau, the second the one that comes back as its adjoint. Raises InputError.
    """
    times, k = len(quark.projections), sources.shape[-1]
    for line in (quark, antiquark):
        columns = line.rho.shape[-1]
        _check_shape("sink projections", line.projections, (times, SPINS, k, columns), sinks)
    xp, words = array_module(quark.projections), len(sources)
    adjoint = sources.conj().swapaxes(1, 2)
    # rho_1^H Phi^dag rho_2, [word, c, d, column of 1 and 2]
    right = _between(quark.rho, adjoint, antiquark.rho).reshape(words * PAIRS, -1)
    pairs = xp.empty((times, words * PAIRS, words * PAIRS), complex)
    for time in range(times):
        # c_2^H Phi c_1, [word, a, b, column of 2 and 1]
        left = _between(antiquark.projections[time], sinks[:, time], quark.projections[time])
        left = left.swapaxes(3, 4).reshape(words * PAIRS, -1)
        xp.matmul(left, right.T, out=pairs[time])
    open_spins = to_host(pairs).reshape(times, words, SPINS, SPINS, words, SPINS, SPINS)
    return open_spins.transpose(0, 1, 4, 3, 5, 2, 6)


def dirac_correlators(pairs: NDArray, gammas: Sequence[str]) -> NDArray[np.complex128]:
    """C_GG(t) of Dirac matrices, complex128 ``[gamma, time]``, of pairs of one word ``[time, b, c, a, d]``.

    Raises InputError for an unknown matrix.
    """
    correlators = np.empty((len(gammas), len(pairs)), complex)
    for number, name in enumerate(gammas):
        sink, source = vertices(name)
        correlators[number] = -np.einsum("ab,cd,tbcad->t", sink, source, pairs, optimize=True)
    return correlators


def correlation_matrix(
    pairs: NDArray, operators: Sequence[MesonOperator], words: Sequence[str]
) -> NDArray[np.complex128]:
    """C_AB(t) of all pairs of operators, complex128 ``[A, B, time]``; words: those of the pairs.

    Raises InputError for an operator whose displacement is none of the words.
    """
    sinks, sources = operator_vertices(operators, words)
    return -np.einsum("oxab,pycd,txybcad->opt", sinks, sources, pairs, optimize=True)


def _between(left: Array, phi: Array, right: Array) -> Array:
    """left^H Phi right of spins and columns ``[spin, i, n]``, ``[word, i, j]`` and ``[spin, j, m]``:
    ``[word, spin of left, spin of right, n, m]``.
    """
    xp, n, m = array_module(phi), left.shape[-1], right.shape[-1]
    bra = left.transpose(0, 2, 1).reshape(SPINS * n, -1).conj()
    ket = right.transpose(1, 0, 2).reshape(-1, SPINS * m)
    products = xp.matmul(bra, phi @ ket).reshape(len(phi), SPINS, n, SPINS, m)
    return products.transpose(0, 1, 3, 2, 4)


def _check_shape(name: str, given: Array, expected: tuple[int, ...], sinks: Array) -> None:
    times, k = expected[0], expected[2]
    if given.shape != expected or sinks.shape[1:] != (times, k, k):
        raise InputError(
            f"{name} of shape {given.shape} and elementals {sinks.shape[1:]} do not belong together: take "
            "the same time slices and eigenvectors for both"
        )
