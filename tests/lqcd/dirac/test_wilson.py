"""Wilson and Wilson-clover operators: dense matrices, symmetries, the free field and Chroma's numbers."""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import Normal
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator, kappa_of_mass, mass_of_kappa
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.stout import SPATIAL_DIRECTIONS, stout_links
from stages.lqcd.gauge.wilson_links import Anisotropy, WilsonLinks, wilson_links
from stages.lqcd.kernels.gamma import GAMMA, GAMMA5
from stages.lqcd.lattice.formats import read_gauge
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.solvers.cg import BatchedCG
from support.matrices import matrix_of
from support.refusals import refuses
from workflows.certification.fields import momenta, rotated, rough_links, rough_rotation, unit_links

LATTICE = Lattice((4, 2, 2, 4))
ANISOTROPY = Anisotropy(2.464, 0.95)


def operator(links: NDArray, lattice: Lattice = LATTICE, **options: Any) -> WilsonOperator:
    made = wilson_links(links, lattice, **{"boundary": "antiperiodic", "csw": 1.17, **options})
    return WilsonOperator(WilsonDslash(made), -0.31)


def dense(A: Any) -> NDArray:
    """The matrix of an operator."""
    return matrix_of(A.apply, A.shape, A.dtype)


def written_out(made: WilsonLinks, mass: float) -> NDArray:
    """M of one set of links, element by element from its definition, on ``[parity, site, spin, colour]``."""
    lattice, weights = made.lattice, made.anisotropy.weights
    sites = lattice.half_volume
    m = np.zeros((2, sites, 4, 3, 2, sites, 4, 3), complex)
    clover = None if made.csw is None else [made.clover(parity) for parity in (EVEN, ODD)]
    for parity, site in product((EVEN, ODD), range(sites)):
        local = np.einsum("rs,ab->rasb", np.eye(4), np.eye(3, dtype=complex)) * (mass + sum(weights))
        if clover is not None:
            for c in range(2):
                block = clover[parity][site, c].reshape(2, 3, 2, 3)
                local[2 * c : 2 * c + 2, :, 2 * c : 2 * c + 2] += block
        m[parity, site, :, :, parity, site] += local
        for mu in range(4):
            up = lattice.neighbour(parity, mu, 1)[site]
            down = lattice.neighbour(parity, mu, -1)[site]
            forward = made.links[mu, parity, site]
            backward = made.links[mu, 1 - parity, down].conj().T
            for there, projector, link in (
                (up, np.eye(4) - GAMMA[mu], forward),
                (down, np.eye(4) + GAMMA[mu], backward),
            ):
                hop = np.einsum("rs,ab->rasb", projector, link)
                m[parity, site, :, :, 1 - parity, there] -= 0.5 * weights[mu] * hop
    size = 2 * sites * 12
    return m.reshape(size, size)


def random_field(*shape: int) -> NDArray:
    rng = np.random.default_rng(20261121)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


@pytest.mark.parametrize("csw", [0.0, 1.17, (0.91, 1.07)])
@pytest.mark.parametrize("boundary", ["antiperiodic", "periodic", "dirichlet"])
@pytest.mark.parametrize(
    "extents", [(4, 2, 2, 4), pytest.param((4, 4, 4, 4), marks=pytest.mark.slow)], ids=str
)
def test_matrix_is_that_of_the_definition(csw, boundary, extents):
    lattice = Lattice(extents)
    links = rough_links(5, lattice)
    made = wilson_links(links, lattice, boundary=boundary, csw=csw, anisotropy=ANISOTROPY)
    spatial, temporal = csw if isinstance(csw, tuple) else (csw, csw)
    assert made.csw == ((spatial / 2.464, temporal) if csw else None)
    M = WilsonOperator(WilsonDslash(made), -0.31)
    assert np.abs(dense(M) - written_out(made, -0.31)).max() < 1e-13


def test_gamma5_hermiticity() -> None:
    M = operator(rough_links(7, LATTICE))
    x = random_field(*M.shape, 3)
    gamma5 = np.repeat(np.diag(GAMMA5).real, 3)[:, None]
    adjoint = (dense(M).conj().T @ x.reshape(-1, 3)).reshape(x.shape)
    assert np.abs(gamma5 * M.apply(gamma5 * x) - adjoint).max() < 1e-13 * np.abs(x).max() * 12


def test_gauge_covariance() -> None:
    links = rough_links(7, LATTICE)
    g = rough_rotation(8, LATTICE)
    M, other = operator(links), operator(rotated(links, g, LATTICE))
    x = random_field(*M.shape, 3)

    def turned(field: NDArray) -> NDArray:
        spinors = field.reshape(2, LATTICE.half_volume, 4, 3, -1)
        return (g[:, :, None] @ spinors).reshape(field.shape)

    assert np.abs(other.apply(turned(x)) - turned(M.apply(x))).max() < 1e-13 * 50


def test_free_spectrum() -> None:
    """M(p) = m + sum_mu (1 - cos p_mu) + i sum_mu gamma_mu sin p_mu, p_t shifted by the boundary."""
    lattice = Lattice((2, 2, 2, 4))
    M = operator(unit_links(lattice, np), lattice)
    found = np.sort_complex(np.round(np.linalg.eigvals(dense(M)), 9))
    expected = []
    for p in momenta(lattice, "antiperiodic"):
        real, imaginary = -0.31 + np.sum(1 - np.cos(p)), np.sqrt(np.sum(np.sin(p) ** 2))
        expected += [real + 1j * imaginary] * 6 + [real - 1j * imaginary] * 6
    assert np.abs(found - np.sort_complex(np.round(expected, 9))).max() < 1e-8


def free_propagator(lattice: Lattice, mass: float) -> NDArray:
    """M^-1 of a point source at the origin of the free field, ``[parity, site, spin, source spin]``.

    G(p) = (m(p) - i sum_mu gamma_mu sin p_mu) / (m(p)^2 + sum_mu sin^2 p_mu), summed over the momenta, those
    in time shifted by half a unit; m(p) = m + sum_mu (1 - cos p_mu).
    """
    momenta = [
        2 * np.pi * (np.arange(n) + (0.5 if mu == 3 else 0)) / n for mu, n in enumerate(lattice.extents)
    ]
    p = np.stack(np.meshgrid(*momenta, indexing="ij"), axis=-1).reshape(-1, 4)
    scalar = mass + (1 - np.cos(p)).sum(axis=1)
    slashed = np.einsum("km,mrs->krs", np.sin(p), np.array(GAMMA))
    inverse = scalar[:, None, None] * np.eye(4) - 1j * slashed
    inverse /= (scalar**2 + (np.sin(p) ** 2).sum(axis=1))[:, None, None]
    x = np.stack([lattice.coordinates(parity) for parity in (EVEN, ODD)])
    return np.einsum("pxk,krs->pxrs", np.exp(1j * x @ p.T), inverse) / lattice.volume


def solved(M: WilsonOperator, source: NDArray) -> NDArray:
    """M^-1 of a source to rounding, three columns at a time, as many as other tests apply M to."""
    S, parts = WilsonSchur(M), []
    for first in range(0, source.shape[-1], 3):
        b = np.ascontiguousarray(source[..., first : first + 3])
        normal_b = S.adjoint.apply(S.prepare(b)[0])
        x = BatchedCG(tolerance=1e-14).solve(Normal(S), normal_b, on_failure="return").x
        parts.append(S.reconstruct(x, b))
    return np.concatenate(parts, axis=-1)


def test_free_propagator() -> None:
    lattice = Lattice((4, 2, 4, 6))
    made = wilson_links(unit_links(lattice, np), lattice, boundary="antiperiodic")
    M = WilsonOperator(WilsonDslash(made), 0.21)
    source = np.zeros((*M.shape, 12), complex)
    source[EVEN, 0] = np.eye(12)
    expected = np.einsum("pxrs,ab->pxrasb", free_propagator(lattice, 0.21), np.eye(3)).reshape(source.shape)
    M_expected = [M.apply(np.ascontiguousarray(part)) for part in np.split(expected, 4, axis=-1)]
    assert np.abs(np.concatenate(M_expected, axis=-1) - source).max() < 1e-14
    assert np.abs(solved(M, source) - expected).max() < 1e-13


@pytest.mark.parametrize("csw", [0.0, 1.17])
def test_single_precision_is_double_rounded(csw: float) -> None:
    """M, the Schur complement and its adjoint in complex64 differ by single rounding from double."""
    lattice = Lattice((4, 4, 2, 4))
    M = operator(rough_links(21, lattice), lattice, csw=csw, anisotropy=ANISOTROPY)
    for A in (M, WilsonSchur(M), WilsonSchur(M).adjoint):
        x = random_field(*A.shape, 3)
        double, single = A.apply(x), A.astype(np.complex64).apply(x.astype(np.complex64))
        assert single.dtype == np.complex64
        assert 1e-9 < np.linalg.norm(single - double) / np.linalg.norm(double) < 3e-7


@pytest.mark.parametrize("csw", [0.0, 1.17])
@pytest.mark.parametrize("parity", [EVEN, ODD])
def test_schur_complement_is_the_full_system(csw: float, parity: int) -> None:
    M = operator(rough_links(9, LATTICE), csw=csw)
    S = WilsonSchur(M, parity)
    matrix, b = dense(S), random_field(*M.shape, 3)
    assert np.abs(dense(S.adjoint) - matrix.conj().T).max() < 1e-13
    x = np.linalg.solve(matrix, S.prepare(b)[0].reshape(len(matrix), -1)).reshape(*S.shape, -1)
    full = S.reconstruct(x, b)
    assert np.abs(M.apply(full) - b).max() < 1e-11


def test_kappa_and_mass() -> None:
    assert mass_of_kappa(0.125) == 0
    assert kappa_of_mass(mass_of_kappa(0.1234)) == pytest.approx(0.1234, rel=1e-15)
    refuses("kappa must be positive", mass_of_kappa, 0.0)
    refuses("larger than -4", kappa_of_mass, -4.0)


def gaussian(links: NDArray, lattice: Lattice, field: NDArray, width: float, steps: int) -> NDArray:
    """chi <- chi + width^2 / (4 n) Laplacian chi, n times; chi ``[parity, site, 12, N]``."""
    for _ in range(steps):
        moved = -6 * field
        for parity, mu in product((EVEN, ODD), range(3)):
            up, down = lattice.neighbour(parity, mu, 1), lattice.neighbour(parity, mu, -1)
            there = field[1 - parity].reshape(lattice.half_volume, 4, 3, -1)
            back = links[mu, 1 - parity][down].conj().swapaxes(-1, -2)
            hop = links[mu, parity][:, None] @ there[up] + back[:, None] @ there[down]
            moved[parity] += hop.reshape(field[parity].shape)
        field = field + width**2 / (4 * steps) * moved
    return field


@pytest.mark.parametrize("entry", ["wilson:dirichlet", "clover:aniso", "clover:stout_aniso"])
def test_smeared_propagators_of_chroma(reference_data: Path, expected: Callable, entry: str) -> None:
    """Time-slice norms of the smeared source and of all twelve columns of its propagator."""
    reference = expected[entry]
    values = reference["values"]
    gauge = read_gauge(reference_data / "chroma/weak_field.lime")
    lattice = gauge.lattice
    if entry == "wilson:dirichlet":
        made = wilson_links(gauge.links, lattice, boundary="dirichlet")
        slice_t, width, steps = values["source_t"], 2.0, 5
    else:
        made = wilson_links(
            stout_links(gauge.links, lattice, values["rho"], values["n"], SPATIAL_DIRECTIONS),
            lattice,
            boundary="antiperiodic",
            csw=(values["cR"], values["cT"]),
            anisotropy=Anisotropy(values["xi0"], values["nu"]),
        )
        slice_t, width, steps = 0, values["width"], values["iters"]
    M = WilsonOperator(WilsonDslash(made), mass_of_kappa(values["kappa"]))
    point = np.zeros((*M.shape, 12), complex)
    site = int(lattice.site(np.array([0, 0, 0, slice_t])))
    point[slice_t % 2, site] = np.eye(12)
    source = gaussian(gauge.links, lattice, point, width, steps)
    assert float((np.abs(source) ** 2).sum()) == pytest.approx(values["source_corr"], rel=reference["rtol"])
    propagator = solved(M, source)
    back = [M.apply(np.ascontiguousarray(part)) for part in np.split(propagator, 4, axis=-1)]
    assert np.abs(np.concatenate(back, axis=-1) - source).max() < 1e-12
    density = (np.abs(propagator) ** 2).sum(axis=(2, 3)).reshape(2, lattice.time_extent, -1).sum(axis=(0, 2))
    np.testing.assert_allclose(density, values["prop_corr"], rtol=reference["rtol"])
