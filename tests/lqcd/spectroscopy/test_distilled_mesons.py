"""Mesons of distillation against point-to-all correlators, and against dense contractions."""

from dataclasses import replace

import numpy as np
import pytest
from distilled import eigenvectors, exact, perambulator, point_to_all, table_of
from numpy.typing import NDArray
from tiny_lattice import LATTICE

from stages.base.errors import InputError
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.kernels.gamma import GAMMA, GAMMA5
from stages.lqcd.spectroscopy.distilled_mesons import correlation_matrix, perambulator_pairs
from stages.lqcd.spectroscopy.gammas import DIRAC
from stages.lqcd.spectroscopy.operators import BASES, MesonOperator, words_of
from support.matrices import matrix_of

pytestmark = pytest.mark.usefixtures("reference_kernels")

MOMENTA = ((0, 0, 0), (1, 0, 0), (-1, 0, 1))
WORDS = ("", "+x", "-x", "+y-z", "+z-y")
TIMES, SITES = LATTICE.time_extent, LATTICE.sites_per_slice
FEW, SOURCE = 10, 4
OPERATORS = (
    MesonOperator.parse("Gamma5"),
    MesonOperator.parse("GammaX"),
    MesonOperator.parse("0.5 Identity[+x] - 0.5 Identity[-x]"),
    MesonOperator.parse("SigmaYT[+y-z] + 2 GammaTGamma5[]"),
)


@pytest.fixture(scope="module")
def vectors(thin_links: NDArray) -> NDArray:
    """All 48 of each slice."""
    return eigenvectors(thin_links, LATTICE, 48)


@pytest.fixture(scope="module")
def few(vectors: NDArray) -> NDArray:
    return np.ascontiguousarray(vectors[..., :FEW])


def test_all_eigenvectors_give_the_sum_over_points(vectors, thin_links, inverse) -> None:
    tau = perambulator(vectors, inverse, LATTICE, SOURCE)
    table = table_of(vectors, thin_links, LATTICE, MOMENTA)
    columns = inverse[:, :, :, :, SOURCE * SITES : (SOURCE + 1) * SITES]
    expected = point_to_all(columns, LATTICE, SOURCE, MOMENTA)
    for number, momentum in enumerate(MOMENTA):
        found = exact(tau, table, momentum, SOURCE)
        largest = np.abs(expected[:, number]).max(axis=-1, keepdims=True)
        assert (np.abs(found - expected[:, number]) < 1e-11 * largest).all(), momentum


def by_slices(inverse: NDArray) -> NDArray:
    """``[time, spin, parity site colour, time, spin, parity site colour]``."""
    cut = inverse.reshape(2, TIMES, SITES, 4, 3, 2, TIMES, SITES, 4, 3)
    return cut.transpose(1, 3, 0, 2, 4, 6, 8, 5, 7, 9).reshape(TIMES, 4, 6 * SITES, TIMES, 4, 6 * SITES)


def dense_operators(vectors: NDArray, links: NDArray, momentum) -> list[NDArray]:
    """The operators as matrices on spin, sites and colours of each slice ``[time, n, n]``."""
    V = vectors.reshape(TIMES, 6 * SITES, -1)
    phi = table_of(vectors, links, LATTICE, (tuple(-n for n in momentum),), WORDS).values[:, 0]
    smeared = {word: V @ phi[:, n] @ V.conj().swapaxes(1, 2) for n, word in enumerate(WORDS)}
    dense = []
    for operator in OPERATORS:
        terms = (
            c * np.einsum("ab,txy->taxby", DIRAC[gamma], smeared[word]) for c, gamma, word in operator.terms
        )
        dense.append(sum(terms).reshape(TIMES, 24 * SITES, 24 * SITES))
    return dense


def wick(
    vectors: NDArray, links: NDArray, inverse: NDArray, momentum, back: NDArray | None = None
) -> NDArray:
    """-tr [A(t) S(t, t0) gamma_t B(t0)^dag gamma_t S(t0, t)], with the true backward propagator, element by
    element ``[A, B, time]``; back: another quark's inverse for it.
    """
    S, dense, n = by_slices(inverse), dense_operators(vectors, links, momentum), 24 * SITES
    R = S if back is None else by_slices(back)
    gamma_t = np.kron(GAMMA[3], np.eye(6 * SITES))
    C = np.zeros((len(dense), len(dense), TIMES), complex)
    for t in range(TIMES):
        forward, backward = S[t, :, :, SOURCE].reshape(n, n), R[SOURCE, :, :, t].reshape(n, n)
        left = [A[t] @ forward for A in dense]
        right = [(gamma_t @ B[SOURCE].conj().T @ gamma_t @ backward).T for B in dense]
        C[..., (t - SOURCE) % TIMES] = [[-np.sum(each * other) for other in right] for each in left]
    return C


@pytest.mark.parametrize("momentum", [(0, 0, 0), (1, 0, 1)])
def test_correlation_matrix_of_displaced_operators(few, thin_links, inverse, momentum) -> None:
    """From elementals of p, though those of -p are meant: the adjoints along the paths back."""
    words = words_of(OPERATORS)
    table = table_of(few, thin_links, LATTICE, (momentum,), WORDS)
    tau = perambulator(few, inverse, LATTICE, SOURCE)
    (pairs,) = perambulator_pairs(tau, table, SOURCE, [momentum], words)
    found = correlation_matrix(pairs, OPERATORS, words)
    expected = wick(few, thin_links, inverse, momentum)
    assert np.abs(found - expected).max() < 1e-11 * np.abs(expected).max()


def test_flavours_of_twisted_quarks(few, thin_links, inverse) -> None:
    """Charged: up there and down back, from one perambulator; neutral: up there and up back, from both."""
    gamma5 = np.kron(np.eye(2 * LATTICE.half_volume), np.kron(GAMMA5, np.eye(3)))
    untwisted = inverse.reshape(gamma5.shape)
    up = untwisted @ np.linalg.inv(np.eye(len(gamma5)) + 0.3j * gamma5 @ untwisted)
    down = gamma5 @ up.conj().T @ gamma5
    up, down = (each.reshape(inverse.shape) for each in (up, down))
    tau, other = (perambulator(few, each, LATTICE, SOURCE) for each in (up, down))
    words, table = words_of(OPERATORS), table_of(few, thin_links, LATTICE, MOMENTA[1:2], WORDS)
    for antiquark, back in ((None, down), (other, up)):
        (pairs,) = perambulator_pairs(tau, table, SOURCE, MOMENTA[1:2], words, antiquark)
        found = correlation_matrix(pairs, OPERATORS, words)
        expected = wick(few, thin_links, up, MOMENTA[1], back)
        assert np.abs(found - expected).max() < 1e-11 * np.abs(expected).max()


def test_adjoint_elementals_are_those_of_the_opposite_momentum(few, thin_links) -> None:
    there = table_of(few, thin_links, LATTICE, ((1, 0, -1),), WORDS)
    opposite = table_of(few, thin_links, LATTICE, ((-1, 0, 1),), WORDS)
    momenta = ((1, 0, -1), (-1, 0, 1))
    for time in range(TIMES):
        found, expected = (table.vertices(time, momenta, WORDS) for table in (there, opposite))
        assert np.abs(found - expected).max() < 1e-13


def test_bases_run_backwards_as_they_run_forwards() -> None:
    """Free quarks: C(T - t) = C(t) within a basis; pions and rhos, as reflections of x tell, do not mix."""
    links = np.broadcast_to(np.eye(3, dtype=complex), (4, 2, LATTICE.half_volume, 3, 3)).copy()
    dslash = WilsonDslash(wilson_links(links, LATTICE, boundary="antiperiodic"))
    M = WilsonOperator(dslash, 0.3)
    inverse = np.linalg.inv(matrix_of(M.apply, M.shape))
    vectors = eigenvectors(links, LATTICE, 48)
    tau = perambulator(vectors, inverse.reshape(*M.shape, *M.shape), LATTICE, SOURCE)
    operators = [MesonOperator.parse(text) for text in (*BASES["pion"][0], *BASES["rho"][0])]
    words = words_of(operators)
    table = table_of(vectors, links, LATTICE, MOMENTA[:1], words)
    (pairs,) = perambulator_pairs(tau, table, SOURCE, MOMENTA[:1], words)
    C = correlation_matrix(pairs, operators, words)
    size_of = np.sqrt(np.abs(np.einsum("aat,bbt->abt", C, C)))
    assert np.abs(C[:2, :2, 1:] - C[:2, :2, :0:-1]).max() < 1e-12 * np.abs(C).max()
    assert np.abs(C[2:, 2:, 1:] - C[2:, 2:, :0:-1]).max() < 1e-12 * np.abs(C).max()
    assert (np.abs(C[:2, 2:]) < 1e-10 * size_of[:2, 2:]).all()
    assert (np.abs(C[[0, 2], [1, 3], 1]) > 0.1 * size_of[[0, 2], [1, 3], 1]).all()


def test_fewer_eigenvectors_of_the_same_elementals(vectors, few, thin_links) -> None:
    many, own = (table_of(v, thin_links, LATTICE, MOMENTA, WORDS) for v in (vectors, few))
    cut = replace(many, eigenvectors=FEW)
    assert np.abs(cut.vertices(3, MOMENTA, WORDS) - own.vertices(3, MOMENTA, WORDS)).max() < 1e-13


def test_what_is_refused(few, thin_links, inverse) -> None:
    table = table_of(few, thin_links, LATTICE, ((0, 0, 0), (1, 0, 0)), ("", "+x"))
    with pytest.raises(InputError, match=r"momentum \[0, 1, 0\] with displacement '' needs .* \[0, -1, 0\]"):
        table.vertices(0, [(0, 1, 0)], [""])
    with pytest.raises(InputError, match=r"'\+x' needs .* \[-1, 0, 0\] with it, or of \[1, 0, 0\] with '-x'"):
        table.vertices(0, [(1, 0, 0)], ["+x"])
    with pytest.raises(InputError, match=r"of 6 time slices, 1 momenta, 2 displacements and 10 eigenvectors"):
        replace(table, momenta=MOMENTA[:1])
    with pytest.raises(InputError, match=r"11 eigenvectors are needed, got shape \(6, 2, 2, 10, 10\)"):
        replace(table, eigenvectors=11)
    tau = perambulator(few, inverse, LATTICE, SOURCE)
    with pytest.raises(InputError, match=r"\(5, 4, 10, 4, 10\) and elementals of 6 time slices and 10 eigen"):
        perambulator_pairs(tau[1:], table, SOURCE, MOMENTA[:1], [""])
