"""Field strength and clover term: fields known in closed form, the continuum limit, finite differences."""

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import expm

from stages.lqcd.gauge.clover import clover_term, field_strength
from stages.lqcd.kernels.gamma import GAMMA
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice, T

PLANES = list(combinations(range(4), 2))
CHARGES = np.diag([1.0, 2.0, -3.0])
"""Of the three colours in an Abelian subgroup of SU(3)."""


def gell_mann() -> NDArray:
    """The eight generators of SU(3), Hermitian, tr = 1/2."""
    matrices = []
    for i, j in combinations(range(3), 2):
        for value in (0.5, -0.5j):
            m = np.zeros((3, 3), complex)
            m[i, j], m[j, i] = value, np.conj(value)
            matrices.append(m)
    return np.array([*matrices, np.diag([0.5, -0.5, 0]), np.diag([1, 1, -2]) / np.sqrt(12)])


def constant_field(lattice: Lattice, mu: int, nu: int, flux: int) -> tuple[NDArray, float]:
    """Links of a constant Abelian field in one plane, and its angle per plaquette and unit of charge.

    U_nu(x) = exp(i phi x_mu Q); the last U_mu of a row turns the field round the torus, phi = 2 pi k / area.
    """
    phi = 2 * np.pi * flux / (lattice.extents[mu] * lattice.extents[nu])
    links = np.zeros((4, 2, lattice.half_volume, 3, 3), complex)
    links[:] = np.eye(3)
    for parity in (EVEN, ODD):
        x = lattice.coordinates(parity)
        angles = phi * x[:, nu]
        last = x[:, mu] == lattice.extents[mu] - 1
        diagonal = np.exp(1j * phi * x[:, mu, None] * np.diag(CHARGES))
        links[nu, parity] = diagonal[:, :, None] * np.eye(3)
        turn = np.exp(-1j * lattice.extents[mu] * angles[:, None] * np.diag(CHARGES))
        links[mu, parity][last] = (turn[:, :, None] * np.eye(3))[last]
    return links, phi


@pytest.mark.parametrize(("mu", "nu"), PLANES)
def test_constant_field(mu: int, nu: int) -> None:
    """Every plaquette is exp(i phi Q): F = i sin(phi Q) in its plane, 0 in the others."""
    lattice = Lattice((4, 6, 4, 2))
    links, phi = constant_field(lattice, mu, nu, 1)
    for plane in PLANES:
        expected = 1j * np.diag(np.sin(phi * np.diag(CHARGES))) if plane == (mu, nu) else 0
        for parity in (EVEN, ODD):
            assert np.abs(field_strength(links, lattice, parity, *plane) - expected).max() < 1e-14
            assert np.abs(field_strength(links, lattice, parity, *plane[::-1]) + expected).max() < 1e-14


@pytest.mark.parametrize(("mu", "nu"), PLANES)
def test_clover_term_of_a_constant_field(mu: int, nu: int) -> None:
    """C = -(c/2) sigma x sin(phi Q) at every site, sigma = i gamma_mu gamma_nu, on the chiral blocks."""
    lattice = Lattice((4, 6, 4, 2))
    links, phi = constant_field(lattice, mu, nu, 1)
    found = np.stack([clover_term(links, lattice, parity, 0.83, 1.31) for parity in (EVEN, ODD)])
    sigma = 1j * GAMMA[mu] @ GAMMA[nu]
    dense = -0.5 * (1.31 if T in (mu, nu) else 0.83) * np.kron(sigma, np.diag(np.sin(phi * np.diag(CHARGES))))
    assert np.abs(dense[:6, 6:]).max() == np.abs(dense[6:, :6]).max() == 0
    for chirality in range(2):
        half = slice(6 * chirality, 6 * chirality + 6)
        assert np.abs(found[:, :, chirality] - dense[half, half]).max() < 1e-14


RANDOM = np.random.default_rng(20261123)
WAVES, PHASES = RANDOM.integers(-1, 2, (4, 8, 4)), RANDOM.uniform(0, 2 * np.pi, (4, 8))


def smooth_field(points: NDArray, mu: int) -> NDArray:
    """A_mu at points ``[*, 4]`` of the unit torus: sines of period 1 times the generators."""
    waves = np.sin(2 * np.pi * points @ WAVES[mu].T + PHASES[mu])
    return np.einsum("pa,aij->pij", 0.7 * waves, gell_mann())


def continuum_strength(points: NDArray, mu: int, nu: int) -> NDArray:
    """i F of U = P exp(i int A), F = d_mu A_nu - d_nu A_mu + i [A_mu, A_nu], by differences of A itself."""
    step = 1e-5

    def derivative(direction: int, component: int) -> NDArray:
        shift = step * np.eye(4)[direction]
        ahead, behind = smooth_field(points + shift, component), smooth_field(points - shift, component)
        return (ahead - behind) / (2 * step)

    a, b = smooth_field(points, mu), smooth_field(points, nu)
    return 1j * (derivative(mu, nu) - derivative(nu, mu) + 1j * (a @ b - b @ a))


def strength_error(mu: int, nu: int, cells: int) -> float:
    """Largest deviation of F / a^2 from the continuum, a = 1 / cells in the plane, on one plane of sites."""
    extents = [2, 2, 2, 2]
    extents[mu] = extents[nu] = cells
    lattice, a = Lattice(tuple(extents)), 1 / cells
    links = np.zeros((4, 2, lattice.half_volume, 3, 3), complex)
    links[:] = np.eye(3)
    others = [direction for direction in range(4) if direction not in (mu, nu)]
    points, on_plane = [], []
    for parity in (EVEN, ODD):
        coordinates = lattice.coordinates(parity)
        on_plane.append((coordinates[:, others] == 0).all(axis=1))
        points.append(a * coordinates[on_plane[parity]])
        for direction in (mu, nu):
            middle = points[parity] + a / 2 * np.eye(4)[direction]
            links[direction, parity, on_plane[parity]] = expm(1j * a * smooth_field(middle, direction))
    found = [field_strength(links, lattice, parity, mu, nu) / a**2 for parity in (EVEN, ODD)]
    return max(
        np.abs(found[parity][on_plane[parity]] - continuum_strength(points[parity], mu, nu)).max()
        for parity in (EVEN, ODD)
    )


@pytest.mark.parametrize(("mu", "nu"), [(0, 1), (1, 3), (2, 3)])
def test_continuum_limit_of_a_smooth_field(mu: int, nu: int) -> None:
    """The leaves around a site cancel the odd powers: errors of F fall as a^2."""
    coarse, middle, fine = (strength_error(mu, nu, cells) for cells in (8, 16, 32))
    assert 3.2 < coarse / middle < 4.8 and 3.7 < middle / fine < 4.3
    assert fine < 0.5
