"""Meson two-point functions from perambulators and elementals (distillation, arXiv:0905.2160).

Quark fields are smeared by V V^H, the eigenvectors of a time slice being the columns of V. An operator is

    O(p, t) = sum_x exp(-ipx) psibar_2 V V^H G D V V^H psi_1 = (psibar_2 V) G Phi(t) (V^H psi_1)

or a sum of such terms, with Phi = V^H exp(-ipx) D V and D a covariant displacement. With perambulators
tau(t, t0) = V(t)^H M^-1 V(t0), and tau(t0, t) = gamma5 tau(t, t0)^dag gamma5,

    C_AB(p, t) = <O_A(p, t0 + t) O_B(p, t0)^dag>
               = -tr [ gamma5 G_A Phi_A(t0 + t) tau Gbar_B gamma5 Phi_B(t0)^dag tau^dag ]

where Gbar = gamma_t G^dag gamma_t. Signs and normalisation are those of `stages.lqcd.spectroscopy.mesons`,
but the source is all of a time slice: with all eigenvectors C_GG(p, t) is the sum of the C_G(p, t) there over
the points of the source's slice. Quark-line connected parts only.

Stochastic LapH (arXiv:1104.3870) has tau = sum_d c_d rho_d^H in the mean over noise, with c_d the sink
projection of the solution whose source is V rho_d, and takes another noise for each of the two quark lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.dirac.displacement import reversed_word, steps_of
from stages.lqcd.kernels.dispatch import Array, array_module, as_numpy, to_device_like
from stages.lqcd.kernels.gamma import SPINS
from stages.lqcd.spectroscopy.mesons import Momentum
from stages.lqcd.spectroscopy.operators import MesonOperator, local_vertices, operator_vertices

PAIRS = SPINS**2


@dataclass(frozen=True, eq=False)
class ElementalTable:
    """v_i^H exp(ipx) D v_j ``[time, momentum, displacement, i, j]``, an array in memory or in a store.

    momenta, displacements: those of the axes, as integers n (p = 2 pi n / L) and as words
    (`stages.lqcd.dirac.displacement`); extents: of the lattice, x y z t; eigenvectors: how many of those that
    the array has are taken, the lowest. Raises InputError for an array that is not of this shape.
    """

    values: NDArray[np.complex128]
    momenta: tuple[Momentum, ...]
    displacements: tuple[str, ...]
    extents: tuple[int, int, int, int]
    eigenvectors: int

    def __post_init__(self) -> None:
        shape, expected = self.values.shape, (self.extents[3], len(self.momenta), len(self.displacements))
        if len(shape) != 5 or shape[:3] != expected or min(shape[3:]) < self.eigenvectors:
            raise InputError(
                f"elementals of {expected[0]} time slices, {expected[1]} momenta, {expected[2]} "
                f"displacements and {self.eigenvectors} eigenvectors are needed, got shape {tuple(shape)}"
            )

    def vertices(
        self, time: int, momenta: Sequence[Momentum], words: Sequence[str]
    ) -> NDArray[np.complex128]:
        """Phi = V^H exp(-ipx) D V of operators of momentum p on a slice, ``[momentum, word, i, j]``.

        Each is the elemental of -p, or the adjoint of that of p along the path back. Raises InputError where
        neither is in the table.
        """
        k = self.eigenvectors
        table = np.asarray(self.values[time])[..., :k, :k]
        return np.stack([[self._vertex(table, momentum, word) for word in words] for momentum in momenta])

    def _vertex(self, table: NDArray, momentum: Momentum, word: str) -> NDArray[np.complex128]:
        opposite, back = tuple(-n for n in momentum), reversed_word(word)
        if opposite in self.momenta and word in self.displacements:
            return table[self.momenta.index(opposite), self.displacements.index(word)]
        if momentum in self.momenta and back in self.displacements:
            # D exp(-ipx) = exp(-ipd) exp(-ipx) D, d from the path's beginning to its end
            reverse = table[self.momenta.index(momentum), self.displacements.index(back)]
            return np.exp(1j * self._angle(momentum, word)) * reverse.conj().T
        raise InputError(
            f"a meson operator of momentum {list(momentum)} with displacement {word!r} needs the elementals "
            f"of momentum {list(opposite)} with it, or of {list(momentum)} with {back!r}: add them to the "
            f"elementals, which have momenta {[list(p) for p in self.momenta]} and displacements "
            f"{list(self.displacements)}"
        )

    def _angle(self, momentum: Momentum, word: str) -> float:
        """Phase p d of a path."""
        steps = (2 * np.pi * momentum[mu] / self.extents[mu] * step for mu, step in steps_of(word))
        return float(sum(steps))


class QuarkLine(NamedTuple):
    """Sink projections of solutions, and the coefficients of their sources on the source's slice."""

    projections: Array
    """c ``[time, spin, eigenvector, column]``."""
    rho: Array
    """``[spin, eigenvector, column]``."""


def perambulator_pairs(
    perambulator: Array,
    table: ElementalTable,
    time: int,
    momenta: Sequence[Momentum],
    words: Sequence[str],
    antiquark: Array | None = None,
) -> NDArray[np.complex128]:
    """Sum over eigenvectors of (Phi_A tau)[b, c] (tau Phi_B)[a, d]^*, all spins open, on the host.

    perambulator: tau from the slice `time` to all ``[time, spin, i, spin of the source, j]``. The result is
    complex128 ``[momentum, time, word A, word B, b, c, a, d]``, time counted from the source; all correlators
    follow from it. antiquark: the perambulator that comes back as its adjoint, by default the same. With
    twisted quarks, whose gamma5-Hermiticity swaps flavours, that is the charged channel; those of both
    flavours give the connected part of the neutral one. Raises InputError.
    """
    k, back = table.eigenvectors, perambulator if antiquark is None else antiquark
    for tau in (perambulator, back):
        _check_shape("a perambulator", tau, (SPINS, k, SPINS, k), table)
    pairs = _no_pairs(momenta, table, words)
    sources = to_device_like(table.vertices(time, momenta, words), perambulator)
    for t in range(len(perambulator)):
        later = (time + t) % len(perambulator)
        sinks = to_device_like(table.vertices(later, momenta, words), perambulator)
        for number, (sink, source) in enumerate(zip(sinks, sources, strict=True)):
            pairs[number, t] = _products(perambulator[later], back[later], sink, source)
    return pairs


def stochastic_pairs(
    quark: QuarkLine,
    antiquark: QuarkLine,
    table: ElementalTable,
    time: int,
    momenta: Sequence[Momentum],
    words: Sequence[str],
) -> NDArray[np.complex128]:
    """An estimate of what `perambulator_pairs` gives, from two quark lines of independent noise.

    The first is tau, the second the one that comes back as its adjoint. Raises InputError.
    """
    for line in (quark, antiquark):
        expected = (SPINS, table.eigenvectors, line.rho.shape[-1])
        _check_shape("sink projections", line.projections, expected, table)
    pairs, like = _no_pairs(momenta, table, words), quark.projections
    daggers = to_device_like(table.vertices(time, momenta, words), like).conj().swapaxes(-1, -2)
    # rho_1^H Phi_B^dag rho_2 [word B, c, d, column of 1, of 2]
    sources = [_between(quark.rho, dagger, antiquark.rho) for dagger in daggers]
    for t in range(len(like)):
        later = (time + t) % len(like)
        sinks = to_device_like(table.vertices(later, momenta, words), like)
        for number, (sink, source) in enumerate(zip(sinks, sources, strict=True)):
            # c_2^H Phi_A c_1 [word A, a, b, column of 2, of 1]
            sink_products = _between(antiquark.projections[later], sink, quark.projections[later])
            products = _product(sink_products.swapaxes(3, 4), source)
            pairs[number, t] = products.transpose(0, 3, 2, 4, 1, 5)
    return pairs


def dirac_correlators(pairs: NDArray, gammas: Sequence[str]) -> NDArray[np.complex128]:
    """C_GG(t) of Dirac matrices, complex128 ``[gamma, time]``, of pairs of one word ``[time, b, c, a, d]``.

    gammas: names, or sums such as 'GammaX + GammaY'.

    Raises InputError for an unknown matrix.
    """
    correlators = np.empty((len(gammas), len(pairs)), complex)
    for number, name in enumerate(gammas):
        sink, source = local_vertices(name)
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


def _products(tau: Array, back: Array, sinks: Array, sources: Array) -> NDArray[np.complex128]:
    """`perambulator_pairs` on a slice, from Phi of sinks and sources ``[word, i, j]``."""
    xp = array_module(tau)
    left = xp.stack([xp.tensordot(phi, tau, (1, 1)).transpose(1, 2, 0, 3) for phi in sinks])
    right = xp.stack([(back @ phi).transpose(0, 2, 1, 3) for phi in sources])
    return _product(left, right.conj()).transpose(0, 3, 1, 2, 4, 5)


def _product(left: Array, right: Array) -> NDArray[np.complex128]:
    """Product of ``[word, spin, spin, ...]``, summed over what follows the spins: those of left, of right."""
    rows = left.reshape(len(left) * PAIRS, -1) @ right.reshape(len(right) * PAIRS, -1).T
    return as_numpy(rows).reshape(len(left), SPINS, SPINS, len(right), SPINS, SPINS)


def _between(left: Array, phi: Array, right: Array) -> Array:
    """Products left^H Phi right of spins and columns, ``[word, spin of left, spin of right, n, m]``.

    Of ``[spin, i, n]``, ``[word, i, j]`` and ``[spin, j, m]``.
    """
    n, m = left.shape[-1], right.shape[-1]
    bra = left.transpose(0, 2, 1).reshape(SPINS * n, -1).conj()
    ket = right.transpose(1, 0, 2).reshape(-1, SPINS * m)
    products = (bra @ (phi @ ket)).reshape(len(phi), SPINS, n, SPINS, m)
    return products.transpose(0, 1, 3, 2, 4)


def _no_pairs(momenta: Sequence[Momentum], table: ElementalTable, words: Sequence[str]) -> NDArray:
    times, spins = table.extents[3], (SPINS,) * 4
    return np.empty((len(momenta), times, len(words), len(words), *spins), complex)


def _check_shape(name: str, array: Array, expected: tuple[int, ...], table: ElementalTable) -> None:
    if tuple(array.shape) != (table.extents[3], *expected):
        raise InputError(
            f"{name} of shape {array.shape} and elementals of {table.extents[3]} time slices and "
            f"{table.eigenvectors} eigenvectors do not belong together: take the same for both"
        )
