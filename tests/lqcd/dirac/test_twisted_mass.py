"""Twisted mass and twisted clover: dense matrices, symmetries, the free field, and a public perambulator."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.lqcd.dirac.operator import half_storage
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator, mass_of_kappa
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.gauge.wilson_links import wilson_links
from stages.lqcd.kernels.gamma import GAMMA, GAMMA5
from stages.lqcd.kernels.short_numbers import from_half, numbers_like
from stages.lqcd.lattice.formats import read_gauge
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.multigrid.setup import LevelParameters, Multigrid
from stages.lqcd.solvers.even_odd import EvenOdd, propagate
from stages.lqcd.solvers.named import Solve
from stages.lqcd.spectroscopy.gammas import DIRAC
from stages.lqcd.spectroscopy.mesons import meson_correlators
from stages.lqcd.spectroscopy.quark_sources import SourcePlace
from support.matrices import error, matrix_of
from workflows.certification.fields import momenta, rotated, rough_links, rough_rotation, unit_links

LATTICE = Lattice((4, 2, 2, 4))
MU, MASS = 0.37, -0.31
THETA = (0.0, 0.3, 0.0, 1.0)
SIGNS = np.repeat(np.diag(GAMMA5).real, 3)[:, None]
"""gamma5 of this basis; that of the twist is minus it."""


def operator(links: Any, lattice: Lattice = LATTICE, **options: Any) -> WilsonOperator:
    made = wilson_links(links, lattice, **{"boundary": "antiperiodic", "csw": 1.17, **options})
    return WilsonOperator(WilsonDslash(made), MASS, MU)


def dense(A: Any) -> NDArray:
    return matrix_of(A.apply, A.shape, A.dtype)


def solved(M: WilsonOperator, source: NDArray) -> NDArray:
    """M^-1 of a source, three columns at a time, as many as other tests apply M to."""
    columns, method = source.shape[-1], Solve("block_cgrq", 1e-13, "double", 500).of_regular(None)
    filled = np.concatenate([source, source[..., : -columns % 3]], axis=-1)
    return propagate(M, filled, EvenOdd(method, WilsonSchur), 3)[0][..., :columns]


@pytest.mark.parametrize("csw", [pytest.param(0.0, marks=pytest.mark.slow), 1.17])
def test_matrices(csw: float) -> None:
    """M is the Wilson matrix - i mu gamma5, S its Schur complement, of both signs and both parities."""
    M = operator(rough_links(5, LATTICE), csw=csw)
    matrix, half = dense(M.with_twist(0.0)), LATTICE.half_volume * 12
    for mu in (MU, -MU):
        twisted = matrix - 1j * mu * np.diag(np.tile(SIGNS[:, 0], 2 * LATTICE.half_volume))
        assert np.abs(dense(M.with_twist(mu)) - twisted).max() < 1e-13
        blocks = twisted.reshape(2, half, 2, half)
        for parity in (EVEN, ODD):
            S = WilsonSchur(M.with_twist(mu), parity)
            own, other = (np.linalg.inv(blocks[p, :, p]) for p in (parity, 1 - parity))
            hops = own @ blocks[parity, :, 1 - parity] @ other @ blocks[1 - parity, :, parity]
            assert np.abs(dense(S) - np.eye(half) + hops).max() < 1e-13
            assert np.abs(dense(S.adjoint) - (np.eye(half) - hops).conj().T).max() < 1e-13
            asymmetric, full = replace(S, symmetric=False), blocks[parity, :, parity] @ (np.eye(half) - hops)
            assert np.abs(dense(asymmetric) - full).max() < 1e-13
            assert np.abs(dense(asymmetric.adjoint) - full.conj().T).max() < 1e-13


@pytest.mark.parametrize("csw", [0.0, 1.17])
@pytest.mark.parametrize("mu", [0.0, MU])
def test_both_forms_of_red_black_preconditioning_solve_the_full_system(csw: float, mu: float) -> None:
    M = operator(rough_links(9, LATTICE), csw=csw).with_twist(mu)
    b = np.random.default_rng(6).normal(size=(*M.shape, 6)).view(complex)
    for symmetric in (True, False):
        S = WilsonSchur(M, ODD, symmetric=symmetric)
        matrix = dense(S)
        x = np.linalg.solve(matrix, S.prepare(b)[0].reshape(len(matrix), -1)).reshape(*S.shape, -1)
        assert np.abs(M.apply(S.reconstruct(x, b)) - b).max() < 1e-11
        assert symmetric or half_storage(S) is None


@pytest.mark.parametrize("csw", [pytest.param(0.0, marks=pytest.mark.slow), 1.17])
def test_normal_equations_in_16_bits(csw: float) -> None:
    """S^H S has the adjoint matrices, not those of S."""
    S = WilsonSchur(operator(rough_links(9, LATTICE), csw=csw)).astype(np.complex64)
    storage = half_storage(S).normal()
    b = np.random.default_rng(7).normal(size=(*S.shape, 6)).view(complex).astype(np.complex64)
    x, norms2 = storage.stored(b), np.empty(3)
    out = numbers_like(x)
    storage.product(x, out, norms2, 0.0, 1.0)()
    expected = S.apply(from_half(x))
    np.testing.assert_allclose(norms2, (np.abs(expected) ** 2).sum(axis=(0, 1)), rtol=1e-3)
    assert error(from_half(out), S.adjoint.apply(expected)) < 3e-4


def test_a_vanishing_twist_is_none_to_the_bit() -> None:
    M = operator(rough_links(5, LATTICE))
    wilson, none = WilsonOperator(M.dslash, MASS), M.with_twist(0.0)
    x = np.random.default_rng(3).normal(size=(*M.shape, 6)).view(complex)
    for A, B in ((wilson, none), (WilsonSchur(wilson), WilsonSchur(none))):
        field = x if A.shape == M.shape else x[0]
        assert A.apply(field).tobytes() == B.apply(field).tobytes()
    assert M.clover(EVEN).kind and not none.clover(EVEN).kind


def test_hermiticity_swaps_flavours_and_covariance() -> None:
    links, rotation = rough_links(7, LATTICE), rough_rotation(8, LATTICE)
    M, rotated_M = operator(links, theta=THETA), operator(rotated(links, rotation, LATTICE), theta=THETA)
    matrix, signs = dense(M), np.tile(SIGNS[:, 0], 2 * LATTICE.half_volume)
    other = signs[:, None] * dense(M.with_twist(-MU)) * signs
    assert np.abs(matrix.conj().T - other).max() < 1e-13
    assert np.abs(matrix.conj().T - signs[:, None] * matrix * signs).max() > MU
    x = np.random.default_rng(4).normal(size=(*M.shape, 6)).view(complex)

    def turned(field: NDArray) -> NDArray:
        spinors = field.reshape(2, LATTICE.half_volume, 4, 3, -1)
        return (rotation[:, :, None] @ spinors).reshape(field.shape)

    assert np.abs(rotated_M.apply(turned(x)) - turned(M.apply(x))).max() < 5e-12


def test_phases_on_all_links_are_a_sign_up_to_a_rotation() -> None:
    """theta_t = 1 differs from the sign on the last slice by e^{i pi t / T} of fields."""
    links = rough_links(7, LATTICE)
    spread, sign = operator(links, boundary="periodic", theta=(0, 0, 0, 1.0)), operator(links)
    x = np.random.default_rng(5).normal(size=(*sign.shape, 6)).view(complex)
    times = np.stack([LATTICE.coordinates(parity)[:, 3] for parity in (EVEN, ODD)])
    phase = np.exp(1j * np.pi * times / LATTICE.time_extent)[..., None, None]
    assert np.abs(spread.apply(x / phase) * phase - sign.apply(x)).max() < 1e-13 * 50


def test_free_propagator() -> None:
    """(m(p) + i mu gamma5 - i p~) / (m(p)^2 + p~^2 + mu^2) for the twist - i mu gamma5."""
    lattice = Lattice((4, 2, 4, 6))
    M = operator(unit_links(lattice, np), lattice, csw=0.0)
    M = WilsonOperator(M.dslash, 0.21, MU)
    p = momenta(lattice, "antiperiodic")
    scalar = 0.21 + (1 - np.cos(p)).sum(axis=1)
    slashed = np.einsum("km,mrs->krs", np.sin(p), np.array(GAMMA))
    inverse = scalar[:, None, None] * np.eye(4) + 1j * MU * GAMMA5 - 1j * slashed
    inverse /= (scalar**2 + (np.sin(p) ** 2).sum(axis=1) + MU**2)[:, None, None]
    x = np.stack([lattice.coordinates(parity) for parity in (EVEN, ODD)])
    exact = np.einsum("pxk,krs->pxrs", np.exp(1j * x @ p.T), inverse) / lattice.volume
    expected = np.einsum("pxrs,ab->pxrasb", exact, np.eye(3)).reshape(*M.shape, 12)
    source = np.zeros((*M.shape, 12), complex)
    source[EVEN, 0] = np.eye(12)
    for three in np.split(np.stack([expected, source]), 4, axis=-1):
        assert np.abs(M.apply(np.ascontiguousarray(three[0])) - three[1]).max() < 1e-13
    assert np.abs(solved(M, source) - expected).max() < 1e-11


CHIRAL = np.array([[0, 0, 0, 1], [0, 0, -1, 0], [0, -1, 0, 0], [1, 0, 0, 0]])
"""R with R gamma_mu R^dag = tmLQCD's, gamma_mu of the DeGrand-Rossi basis."""


def test_perambulator_of_a_public_chain(reference_data: Path) -> None:
    """2 kappa V^dag M_kappa^-1 V rho of sLapH-contractions, by tmLQCD: all 4,096 numbers."""
    folder = reference_data / "slaph"
    gauge = read_gauge(folder / "conf.1000")
    lattice, kappa = gauge.lattice, 0.177
    times, extent, vectors = lattice.time_extent, lattice.extents[0], 16
    made = wilson_links(gauge.links, lattice, boundary="periodic", csw=1.0, theta=(0, 0, 0, 1.0))
    M = WilsonOperator(WilsonDslash(made), mass_of_kappa(kappa), 0.0177 / (2 * kappa))
    stored = [np.fromfile(folder / f"eigenvectors.1000.{t:03d}", "<c16") for t in range(times)]
    V = np.zeros((2, lattice.half_volume, 3, times, vectors), complex)
    for parity, t in product((EVEN, ODD), range(times)):
        x, y, z, when = lattice.coordinates(parity).T
        there = when == t
        fields = stored[t].reshape(vectors, extent, extent, extent, 3)
        V[parity, there, :, t] = fields[:, x[there], y[there], z[there]].transpose(1, 2, 0)
    rho = np.zeros((times, vectors, 4, 2, 2, 4), complex)
    noise = np.fromfile(folder / "rnd00", "<c16").reshape(times, vectors, 4)
    for t, v, s in product(range(times), range(vectors), range(4)):
        rho[t, v, s, t // 2, v % 2, s] = noise[t, v, s]
    sources = np.einsum("pxctv,bs,tvbd->pxscd", V, CHIRAL, rho.reshape(times, vectors, 4, 16), optimize=True)
    solution = solved(M, sources.reshape(*M.shape, 16)).reshape(2, -1, 4, 3, 16)
    found = np.einsum("pxctv,bs,pxscd->tvbd", V.conj(), CHIRAL, solution, optimize=True)
    given = np.fromfile(folder / "peram00", "<c16").reshape(found.shape)
    assert np.abs(found - given).max() < 1e-10


def test_neutral_mesons_take_both_flavours() -> None:
    """Against propagators that go back as they are, not by gamma5-Hermiticity."""
    M = operator(rough_links(5, LATTICE))
    half, place = LATTICE.half_volume, SourcePlace(0, (0, 0, 0))
    up, down = (np.linalg.inv(dense(each)).reshape(*M.shape, *M.shape) for each in (M, M.other_flavour))
    point = up[:, :, :, EVEN, 0], down[:, :, :, EVEN, 0]
    for first, back in ((point[0], up), (point[1], down)):
        S = first.reshape(2, half, 4, 3, 4, 3)
        backward = back[EVEN, 0].reshape(4, 3, 2, half, 4, 3)
        other = point[1] if back is up else point[0]
        names = ("Identity", "Gamma5", "GammaX", "GammaTGamma5")
        found = meson_correlators(first, LATTICE, place, names, [(0, 0, 0)], other)
        for number, name in enumerate(names):
            G = DIRAC[name]
            Gbar = GAMMA[3] @ G.conj().T @ GAMMA[3]
            sites = -np.einsum("ab,pxbicj,cd,djpxai->px", G, S, Gbar, backward, optimize=True)
            expected = sites.reshape(2, LATTICE.time_extent, -1).sum(axis=(0, 2))
            assert np.abs(found[number, 0] - expected).max() < 1e-12


GPU_SOLVES = [
    ("cgnr", "double-half"),
    ("block_cgrq", "double-single"),
    ("bicgstab", "double-half"),
    ("gcr", "double-half"),
]


@pytest.mark.gpu
@pytest.mark.parametrize("csw", [0.0, 1.17])
@pytest.mark.parametrize(("solver", "precision"), GPU_SOLVES)
def test_a_gpu_solves_for_what_processors_do(solver: str, precision: str, csw: float) -> None:
    """Products, sums of a step, and solutions of both flavours."""
    cupy = pytest.importorskip("cupy")
    lattice = Lattice((8, 4, 4, 8))
    links = rough_links(11, lattice)
    exact, M = operator(links, lattice, csw=csw), operator(cupy.asarray(links), lattice, csw=csw)
    rng = np.random.default_rng(12)
    b = rng.normal(size=(*M.shape, 24)).view(complex)
    for own, on_gpu in ((exact, M), (exact.other_flavour, M.other_flavour)):
        for A, B in ((own, on_gpu), (WilsonSchur(own), WilsonSchur(on_gpu))):
            x = b if A.shape == b.shape[:-1] else b[0]
            assert np.abs(B.apply(cupy.asarray(x)).get() - A.apply(x)).max() < 1e-12
        S, T = WilsonSchur(own), WilsonSchur(on_gpu)
        assert np.abs(T.adjoint.apply(cupy.asarray(b[0])).get() - S.adjoint.apply(b[0])).max() < 1e-12
        x, y = (cupy.asarray(each) for each in b)
        updated = T.update(x, y, (0.3j, -1.1, 0.7), cupy.empty_like(x), cupy.empty_like(x)).get()
        assert np.abs(updated - (0.3j * b[0] - 1.1 * S.apply(b[0]) + 0.7 * b[1])).max() < 1e-12
        method = EvenOdd(Solve(solver, 1e-10, precision, 4000).of_regular(None), WilsonSchur)
        found = method.solve(on_gpu, cupy.asarray(b)).x.get()
        assert np.linalg.norm(own.apply(found) - b) < 1e-8 * np.linalg.norm(b)


@pytest.mark.gpu
@pytest.mark.parametrize("csw", [0.0, 1.17])
def test_multigrid_on_a_gpu_serves_both_flavours(csw: float) -> None:
    cupy = pytest.importorskip("cupy")
    lattice = Lattice((8, 8, 8, 8))
    M = operator(cupy.asarray(rough_links(11, lattice)), lattice, csw=csw)
    hierarchy = Multigrid((LevelParameters(aggregate=(2, 2, 2, 2), vectors=8),)).setup(M)
    b = cupy.asarray(np.random.default_rng(12).normal(size=(*M.shape, 24)).view(complex))
    for each, own in ((hierarchy, M), (hierarchy.twist_scaled(-1), M.other_flavour)):
        for precision in ("double-single", "double-half"):
            S = each.system
            solution = each.solver(precision=precision).solve(S, S.prepare(b)[0])
            x = S.reconstruct(solution.x, S.prepare(b)[1])
            assert cupy.linalg.norm(own.apply(x) - b) < 1e-8 * cupy.linalg.norm(b)
            assert solution.iterations < 30
