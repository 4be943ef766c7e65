"""The formulas that results carry, evaluated by dense matrices, against what the stages store."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import nnls
from tiny_hisq_mesons import HISQ_MESONS
from tiny_laph import LAPH
from tiny_mesons import MESONS
from tiny_project import TINY, edit

from pipeline import At
from stages.distillation.distilled_two_point import ElementalAxes, distilled_mesons
from stages.distillation.operator_elementals import Elementals
from stages.distillation.perambulator import Perambulator
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.smeared_links import SmearedLinks
from stages.ensemble.staggered_operator import hisq_operator, naive_operator
from stages.ensemble.wilson_operator import wilson_operator
from stages.loops.correlator import disconnected_correlator
from stages.loops.current_loops import FlavourLoops, exact_loops
from stages.lqcd.kernels.gamma import GAMMA
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.named import Solve
from stages.lqcd.spectroscopy.gammas import DIRAC, NAMES
from stages.mesons import sources as quark_sources
from stages.mesons.propagator import Propagator, StaggeredPropagators, propagator, staggered_propagator
from stages.mesons.sources import staggered_sources
from stages.mesons.two_point import meson_two_point, staggered_two_point
from support.dense_quarks import (
    ahead,
    antiperiodic,
    as_links,
    diagonal_links,
    phases_of_milc,
    staggered_matrix,
    wilson_matrix,
)
from support.lexicographic import to_lexicographic, to_parity
from workflows.catalogue import load_project

pytestmark = pytest.mark.usefixtures("reference_kernels")

LATTICE = Lattice((4, 4, 4, 4))
V, SLICE, T = 256, 64, 4
EXTENTS = LATTICE.extents
PLACE, TIME = (1, 3, 2), 1
ORIGIN = TIME * SLICE + 2 * 16 + 3 * 4 + 1
MOMENTA = ((0, 0, 0), (1, 0, -1))
FIELD = diagonal_links(LATTICE, 42, 0.6)
GAUGE = GaugeLinks(as_links(FIELD, LATTICE), np.array(EXTENTS))
PLACES = np.indices((4, 4, 4, 4)).reshape(4, V)[::-1]
"""x, y, z, t of each site, x fastest."""


def physics(folder: Path, text: str, *changes: tuple[str, str]) -> dict[str, Any]:
    """What a workflow says of its results."""
    file = folder / "file.yaml"
    file.write_text(text)
    return load_project(edit(file, *changes)).workflow.about


def wave(momentum: tuple[int, ...], start: tuple[int, ...] = (0, 0, 0)) -> NDArray:
    """exp(-i p (x - x0)) of all sites."""
    return np.exp(-2j * np.pi * np.array(momentum) @ (PLACES[:3] - np.array(start)[:, None]) / 4)


def by_time(terms: NDArray) -> NDArray:
    """Sums over slices of numbers of all sites, t from the source."""
    return np.roll(terms.reshape(T, SLICE).sum(axis=1), -TIME)


def on_sites(field: NDArray) -> NDArray:
    """``[parity, site, ...]`` as ``[site, ...]``, x fastest."""
    return to_lexicographic(field, LATTICE).reshape(V, *field.shape[2:])


def as_field(values: NDArray) -> NDArray:
    return to_parity(values.reshape(T, 4, 4, 4, *values.shape[1:]), LATTICE)


# mesons


@pytest.fixture(scope="module")
def wilson() -> NDArray:
    """S ``[colour, site, spin, site, spin]``."""
    matrices = (wilson_matrix(FIELD, 0.4, colour).reshape(4 * V, 4 * V) for colour in range(3))
    return np.stack([np.linalg.inv(matrix).reshape(V, 4, V, 4) for matrix in matrices])


def smearing(width: float, steps: int, colour: int) -> NDArray:
    """(1 + width^2 / 4n Laplacian)^n ``[site, site]``."""
    hop, number = np.zeros((V, V), complex), np.arange(V)
    for mu in range(3):
        hop[number, ahead(number.reshape(T, 4, 4, 4), mu).ravel()] = FIELD[mu, ..., colour].ravel()
    laplacian = hop + hop.conj().T - 6 * np.eye(V)
    return np.linalg.matrix_power(np.eye(V) + width**2 / (4 * steps) * laplacian, steps)


def wick(forward: NDArray, backward: NDArray, name: str) -> NDArray:
    """- tr [G S Gbar S'] of S and S' ``[colour, site, spin, spin]``, a number for each site."""
    G = DIRAC[name]
    bar = GAMMA[3] @ G.conj().T @ GAMMA[3]
    return -np.einsum("ab,kxbc,cd,kxda->x", G, forward, bar, backward, optimize=True)


def stored(wilson: NDArray, made: quark_sources.Sources, at: At) -> NDArray:
    """What the stages make of a source ``[gamma, momentum, time]``."""
    b = on_sites(made.fields[..., 0, :]).reshape(V, 4, 3, -1)
    solved = np.einsum("kxayb,ybkc->xakc", wilson, b, optimize=True).reshape(V, 12, 1, -1)
    nothing = np.zeros((1, solved.shape[-1]))
    given = Propagator(as_field(solved), *3 * (nothing,), made.time)
    return meson_two_point(given, at=at, extents=EXTENTS, momenta=MOMENTA).correlator[0]


def check_mesons(stored: NDArray, terms: dict[str, NDArray], start: tuple[int, ...]) -> None:
    """The sums of exp(-i p (x - x0)) times the terms of all sites."""
    for name, each in terms.items():
        for number, momentum in enumerate(MOMENTA):
            expected = by_time(wave(momentum, start) * each)
            found = stored[NAMES.index(name), number]
            np.testing.assert_allclose(found, expected, atol=1e-13 * np.abs(expected).max())


SOME = ("Gamma5", "GammaY", "GammaTGamma5", "SigmaXT", "Identity")


def test_mesons_of_points_and_smeared_points(wilson: NDArray, tmp_path: Path) -> None:
    at = At(config="a", source=("x1y3z2t1",))
    text = "C_G(p, t) = sum_x exp(-i p (x - x0)) <O_G(x, t0 + t) {}_G(x0, t0)^dag>"
    about = physics(tmp_path, MESONS)
    assert about["definition"] == text.format("O") + "; p = 2 pi n / L; mean over sources"
    assert about["sign"] == "that of <O O^dag>: the pion's is positive; t counts from the source"
    forward, backward = wilson[:, :, :, ORIGIN], wilson[:, ORIGIN].transpose(0, 2, 1, 3)
    terms = {name: wick(forward, backward, name) for name in SOME}
    found = stored(wilson, quark_sources.point_sources(GAUGE, at=at), at)
    check_mesons(found, terms, PLACE)
    assert (found[NAMES.index("Gamma5"), 0].real > 0).all()

    smeared = ("kind: point", "kind: smeared, smearing: {width: 1.5, steps: 4}")
    said = physics(tmp_path, MESONS, smeared)["definition"]
    assert said.startswith(text.format("O'") + ", O' of smeared quark fields; ")
    F = np.stack([smearing(1.5, 4, colour) for colour in range(3)])
    forward = np.einsum("kxayb,ky->kxab", wilson, F[:, :, ORIGIN])
    backward = np.einsum("ky,kybxa->kxba", F[:, ORIGIN], wilson)
    made = quark_sources.smeared_sources(GAUGE, at=at, width=1.5, steps=4)
    check_mesons(stored(wilson, made, at), {name: wick(forward, backward, name) for name in SOME}, PLACE)


def test_mesons_of_walls(wilson: NDArray, tmp_path: Path) -> None:
    slice_ = np.arange(TIME * SLICE, (TIME + 1) * SLICE)
    at = At(config="a", source=("t1",))
    changes = ("mesons: {momenta: [[0, 0, 0], [1, 0, 0]]}\n", ""), ("kind: point", "kind: wall")
    assert physics(tmp_path, MESONS, *changes)["definition"].startswith(
        "C_G(t) = sum_x <O_G(x, t0 + t) W_G(t0)^dag>, W_G = sum_y,z psibar_2(y) G psi_1(z) over all sites y "
        "and z of the slice, with equal colours and without gauge links; mean over sources"
    )
    forward = wilson[:, :, :, slice_].sum(axis=3)
    backward = wilson[:, slice_].sum(axis=1).transpose(0, 2, 1, 3)
    found = stored(wilson, quark_sources.wall_sources(GAUGE, at=at), at)
    for name in SOME:
        expected = by_time(wick(forward, backward, name))
        np.testing.assert_allclose(found[NAMES.index(name), 0], expected, atol=1e-13 * np.abs(expected).max())

    changes = changes[0], ("kind: point", "kind: z2_wall, noise: {seed: 3, vectors: 2}")
    assert physics(tmp_path, MESONS, *changes)["definition"].startswith(
        "C_G(t) = (1 / V) sum_x,y <O_G(x, t0 + t) O_G(y, t0)^dag>, V sites in the slice: the mean over its "
    )
    noise = [At(config="a", source=(f"t1n{number}",)) for number in range(60)]
    walls = np.array(
        [stored(wilson, quark_sources.z2_wall_sources(GAUGE, at=each, seed=3), each)[:, 0] for each in noise]
    ).real
    error = walls.std(axis=0, ddof=1) / np.sqrt(len(walls))
    for name in ("Gamma5", "GammaX"):
        points = (wick(wilson[:, :, :, y], wilson[:, y].transpose(0, 2, 1, 3), name) for y in slice_)
        expected, number = by_time(sum(points)).real / SLICE, NAMES.index(name)
        assert (np.abs(walls.mean(axis=0)[number] - expected) < 4 * error[number]).all()
        assert (error[number] < 0.1 * np.abs(expected)).all()


def test_mesons_of_a_file(wilson: NDArray, tmp_path: Path) -> None:
    rng, at = np.random.default_rng(8), At(config="a", source=("mine.npy",))
    source = np.zeros((T, 4, 4, 4, 4, 3, 12), complex)
    source[1:3] = rng.normal(size=source[1:3].shape)
    np.save(tmp_path / "mine.npy", source)
    changes = (
        ("kind: point, times: [0, 2]", f"kind: file, files: {tmp_path}/mine.npy"),
        ("[[0, 0, 0], [1, 0, 0]]", "[[0, 0, 0]]"),
    )
    assert physics(tmp_path, MESONS, *changes)["definition"].startswith(
        "C_G(p, t) = - sum_x exp(-i p x) tr [G S(x) gamma_t G^dag gamma_t gamma_5 S(x)^dag gamma_5], S the "
        "solutions of the file's columns, x from the origin, t0 the first slice that is not zero; "
    )
    made = quark_sources.file_sources(GAUGE, at=at, path=tmp_path / "mine.npy")
    S = np.einsum("kxayb,ybkc->xakc", wilson, source.reshape(V, 4, 3, 12), optimize=True).reshape(
        V, 4, 3, 4, 3
    )
    five, t = DIRAC["Gamma5"], GAMMA[3]
    terms = {}
    for name in SOME:
        G = DIRAC[name]
        bar = t @ G.conj().T @ t @ five
        terms[name] = -np.einsum("ab,xbkcl,cd,xekdl,ea->x", G, S, bar, S.conj(), five, optimize=True)
    check_mesons(stored(wilson, made, at), terms, (0, 0, 0))


def test_the_normalisation_of_wilson_quarks(tmp_path: Path) -> None:
    """M^-1 is 2 kappa times the inverse of 1 - kappa sum (hops)."""
    said = physics(tmp_path, MESONS)["normalisation"]
    assert (
        "propagators are M^-1 with the mass plus the weights of hops (4 if isotropic) on the diagonal" in said
    )
    assert said.endswith("2 kappa times those of the hopping-parameter form")
    kappa, at = 0.11, At(config="a", source=("x1y3z2t1",))
    operator = wilson_operator(GAUGE, at=at, boundary="antiperiodic", kappa=kappa)
    x = np.random.default_rng(3).normal(size=(V, 12, 1)) + 0j
    hops = np.stack([wilson_matrix(FIELD, -4.0, colour) for colour in range(3)]) * -2
    form = x.reshape(V, 4, 3) - kappa * np.einsum("kxayb,ybk->xak", hops, x.reshape(V, 4, 3))
    found = on_sites(operator.apply(as_field(x)))
    np.testing.assert_allclose(2 * kappa * found.reshape(V, 4, 3), form, atol=1e-13)
    solved = propagator(operator, quark_sources.point_sources(GAUGE, at=at), at=at, solve=Solve("cgnr", 1e-8))
    form = [np.eye(4 * V) - kappa * hops[colour].reshape(4 * V, 4 * V) for colour in range(3)]
    expected = 2 * kappa * np.linalg.solve(form[2], np.eye(4 * V)[:, 4 * ORIGIN + 1])
    found = on_sites(solved.propagator[..., 0, 3 * 1 + 2]).reshape(V, 4, 3)[..., 2]
    np.testing.assert_allclose(found.ravel(), expected, atol=1e-7)


def test_mesons_of_distillation(wilson: NDArray, tmp_path: Path) -> None:
    """From perambulators of some vectors, with the backward one instead of gamma5-Hermiticity."""
    assert physics(tmp_path, LAPH)["definition"] == (
        "C_G(p, t) = <O_G(p, t0 + t) O_G(p, t0)^dag>, O_G(p, t) = sum_x exp(-i p x) psibar_2 G psi_1 over "
        "the slice t, also at the source, without a volume factor; p = 2 pi n / L; mean over sources"
    )
    noise = ("solves:", "noise: {kind: z2, seed: 3, vectors: 2}\nsolves:")
    said = physics(tmp_path, LAPH, noise)["definition"]
    assert said.endswith("; mean over sources and pairs of different noise vectors")
    rng, k = np.random.default_rng(4), 5
    vectors = np.linalg.qr(rng.normal(size=(T, 3 * SLICE, k)) + 1j * rng.normal(size=(T, 3 * SLICE, k)))[0]
    v = vectors.reshape(T, SLICE, 3, k)
    S = wilson.reshape(3, T, SLICE, 4, T, SLICE, 4)
    tau = np.einsum("txki,ktxauyb,uykj->taiubj", v.conj(), S, v, optimize=True)
    waves = np.stack([wave(tuple(-n for n in p)).reshape(T, SLICE) for p in MOMENTA])  # e^{ipx}
    values = np.einsum("txki,ptx,txkj->tpij", v.conj(), waves, v)[:, :, None]
    opposite = tuple(tuple(n for n in p) for p in MOMENTA)
    at, none = At(config="a", source=("t1",)), np.zeros((1, 4, k))
    tau_t = Perambulator(tau[:, :, :, TIME][None], np.array([TIME]), none, none)
    given = {"axes": ElementalAxes(EXTENTS), "momenta": MOMENTA}
    made = distilled_mesons(tau_t, Elementals(values, np.array(opposite)), at=at, **given)
    phi = np.einsum("txki,ptx,txkj->ptij", v.conj(), waves.conj(), v)  # V^dag exp(-ipx) V
    for name in SOME:
        G = DIRAC[name]
        bar = GAMMA[3] @ G.conj().T @ GAMMA[3]
        for number in range(len(MOMENTA)):
            there = phi[number, TIME].conj().T
            ends = phi[number], tau[:, :, :, TIME], bar, there, tau[TIME]
            expected = -np.einsum("ab,tij,tbjcm,cd,mn,dntai->t", G, *ends, optimize=True)
            found = made.correlator[0, NAMES.index(name), number]
            np.testing.assert_allclose(found, np.roll(expected, -TIME), atol=1e-12 * np.abs(expected).max())


# hisq_mesons


MASS = 0.45


@pytest.fixture(scope="module")
def hisq() -> tuple[Any, NDArray]:
    """The operator, and G = (2 m + D)^-1 ``[colour, site, site]`` of its links."""
    operator = hisq_operator(GAUGE, at=At(config="a"), boundary="antiperiodic", naik_epsilon=0.0)
    eta = phases_of_milc((T, 4, 4, 4))[..., None]
    fat, long = (
        np.stack([np.einsum("...kk->...k", to_lexicographic(each, LATTICE)) for each in links]) * eta
        for links in (operator.links.fat, operator.links.long)
    )
    return operator, np.stack(
        [np.linalg.inv(staggered_matrix(fat, long, MASS, colour)) for colour in range(3)]
    )


def operators() -> dict[str, NDArray]:
    """Goldstone pion, local vector and one-link vector of y ``[colour, site, site]``."""
    x, y, z, t = PLACES
    epsilon, eta = (-1.0) ** (x + y + z + t), (-1.0) ** (t + x)
    hop = np.zeros((3, V, V), complex)
    hop[:, np.arange(V), ahead(np.arange(V).reshape(T, 4, 4, 4), 1).ravel()] = FIELD[1].reshape(V, 3).T
    one_link = (hop + hop.conj().swapaxes(1, 2)) / 2
    local = {"G5-G5": epsilon, "GY-GY": epsilon * (-1.0) ** y}
    return {name: np.diag(phi)[None] * np.ones((3, 1, 1)) for name, phi in local.items()} | {
        "GY-G1": eta[:, None] * one_link
    }


def hisq_stored(hisq: tuple[Any, NDArray], source: str, solve: bool = False, **options: Any) -> NDArray:
    """What the stages make of a source ``[operator, momentum, time]``."""
    dslash, G = hisq
    at, names = At(config="a", source=(source,)), tuple(operators())
    links = SmearedLinks(GAUGE.links, LATTICE)
    made = staggered_sources(GAUGE, links, at=at, operators=names, **options)
    if solve:
        solved = staggered_propagator(dslash, made, at=at, mass=MASS, solve=Solve("batched_cg", 1e-12))
    else:
        fields = as_field(np.einsum("kxy,yksc->xksc", G, on_sites(made.fields)))
        solved = StaggeredPropagators(fields, *3 * (np.zeros((1, fields.shape[-1])),))
    momenta = MOMENTA if source.startswith("x") else ((0, 0, 0),)
    made = staggered_two_point(solved, links, at=at, extents=EXTENTS, operators=names, momenta=momenta)
    return made.correlator[0]


def test_hisq_mesons_of_points(hisq: tuple[Any, NDArray], tmp_path: Path) -> None:
    about, G = physics(tmp_path, HISQ_MESONS), hisq[1]
    assert about["definition"] == (
        "C(p, t) = Tr [exp(-i p (x - x0)) P_t0+t O G O^dag P_x0 G], x0 the one point of the source, "
        "p = 2 pi n / L; Tr over colour and space, G = M^-1, P projections; mean over sources"
    )
    found = hisq_stored(hisq, "x1y3z2t1", solve=True)
    for number, vertex in enumerate(operators().values()):
        matrix = (vertex @ G @ vertex.conj().swapaxes(1, 2))[:, :, ORIGIN] * G[:, ORIGIN]
        for k, momentum in enumerate(MOMENTA):
            expected = by_time(wave(momentum, PLACE) * matrix.sum(axis=0))
            np.testing.assert_allclose(found[number, k], expected, atol=1e-10 * np.abs(expected).max())


def test_hisq_mesons_of_walls(hisq: tuple[Any, NDArray], tmp_path: Path) -> None:
    G, no_momenta = hisq[1], (", momenta: [[0, 0, 0], [1, 0, 0]]", "")
    said = physics(tmp_path, HISQ_MESONS, no_momenta, ("kind: point", "kind: corner_wall"))["definition"]
    assert said.startswith(
        "C(t) = sum_a b_a^dag G P_t0+t O G O^dag b_a, b_a is 1 at colour a on all sites of even x, y, z "
        "of the slice t0, else 0: a coherent sum over pairs of corners, without a volume factor; "
    )
    x, y, z, t = PLACES
    b = ((x % 2 == 0) & (y % 2 == 0) & (z % 2 == 0) & (t == TIME)).astype(float)
    found = hisq_stored(hisq, "t1")[:, 0]
    for number, vertex in enumerate(operators().values()):
        expected = by_time(((b @ G) * (vertex @ G @ vertex.conj().swapaxes(1, 2) @ b)).sum(axis=0))
        np.testing.assert_allclose(found[number], expected, atol=1e-12 * np.abs(expected).max())

    noise = ("kind: point", "kind: random_wall, noise: {seed: 3}")
    said = physics(tmp_path, HISQ_MESONS, no_momenta, noise)["definition"]
    assert said.startswith(
        "C(t) = Tr [P_t0+t O G O^dag P_t0 G] / V, V sites in the slice t0: the mean over its points, "
        "estimated with noise; "
    )
    walls = np.array([hisq_stored(hisq, f"t1n{number}", seed=3)[:, 0].real for number in range(80)])
    error = walls.std(axis=0, ddof=1) / np.sqrt(len(walls))
    here = slice(TIME * SLICE, (TIME + 1) * SLICE)
    for number, vertex in enumerate(operators().values()):
        terms = (vertex @ G @ vertex.conj().swapaxes(1, 2))[:, :, here] * G[:, here].swapaxes(1, 2)
        expected = by_time(terms.sum(axis=(0, 2))).real / SLICE
        assert (np.abs(walls.mean(axis=0)[number] - expected) < 4 * error[number]).all()
        assert (error[number] < 0.2 * np.abs(expected).max()).all()


def test_the_normalisation_of_hisq_mesons(hisq: tuple[Any, NDArray], tmp_path: Path) -> None:
    said = physics(tmp_path, HISQ_MESONS)["not_included"]["normalisation"]
    assert said == (
        "none: MILC's correlators are the same numbers. With 2 G, the propagator of m + D / 2, C is 4 times "
        "as large; a factor 1/4 for tastes cancels that"
    )  # MILC's numbers: test_milcs_pion, and test_reference_numbers of staggered mesons
    M = np.linalg.inv(hisq[1])
    D = M - 2 * MASS * np.eye(V)
    np.testing.assert_allclose(np.linalg.inv(MASS * np.eye(V) + D / 2), 2 * hisq[1], atol=1e-12)


def test_the_partner_of_a_hisq_meson(tmp_path: Path) -> None:
    """C(t) = sum A cosh - (-1)^t sum B cosh with A, B > 0, which the other sign of B does not fit."""
    said = physics(tmp_path, HISQ_MESONS)["sign"]
    assert said == (
        "that of <O O^dag>: the state that an operator is named after is positive, its partner of other "
        "parity has -(-1)^t; t counts from the source"
    )
    lattice, labels = Lattice((4, 4, 4, 16)), ("G5T-G5T", "GX-GX", "GXT-GXT", "GX-G1")
    field = diagonal_links(lattice, 2, 0.5)
    links, at = as_links(field, lattice), At(config="a", source=("x0y0z0t0",))
    smeared = SmearedLinks(links, lattice)
    gauge = GaugeLinks(links, np.array(lattice.extents))
    b = to_lexicographic(staggered_sources(gauge, smeared, at=at, operators=labels).fields, lattice)
    b = b.reshape(lattice.volume, *b.shape[4:])
    solved = np.zeros_like(b)
    for colour in range(3):
        M = staggered_matrix(antiperiodic(field), None, 0.3, colour)
        solved[:, colour] = np.linalg.solve(M, b[:, colour].reshape(len(M), -1)).reshape(b[:, 0].shape)
    solved = to_parity(solved.reshape(16, 4, 4, 4, *b.shape[1:]), lattice)
    propagators = StaggeredPropagators(solved, *3 * (np.zeros((1, solved.shape[-1])),))
    made = staggered_two_point(propagators, smeared, at=at, extents=lattice.extents, operators=labels)
    t, energies = np.arange(16), np.arange(0.1, 4, 0.05)[:, None]
    states = np.exp(-energies * t) + np.exp(-energies * (16 - t))
    for C in made.correlator[0, :, 0].real:
        misfits = [
            nnls(np.concatenate([states, sign * (-1.0) ** t * states]).T / np.abs(C)[:, None], np.sign(C))[1]
            for sign in (-1, 1)
        ]
        assert misfits[0] < 0.5 * misfits[1]


# g2_disconnected


def test_loops_and_their_correlator(tmp_path: Path) -> None:
    about = physics(tmp_path, TINY)
    assert about["definition"] == (
        "C(t) = (1/3) sum_i (1/T) sum_t0 J_i(t0 + t) J_i(t0), i = x, y, z, mean over pairs of different "
        "noise vectors; J_mu(t) = - sum_x Im tr {eta_mu U_mu(x) [D (4 m^2 - D^2)^-1](x + mu, x)} over the "
        "slice t, tr over colours"
    )
    lattice, mass = Lattice((4, 2, 2, 4)), 0.3
    field = diagonal_links(lattice, 17, 0.8)
    gauge = GaugeLinks(as_links(field, lattice), np.array(lattice.extents))
    at = At(config="a")
    dslash = naive_operator(gauge, at=at, boundary="antiperiodic")
    found = exact_loops(dslash, at=at, mass=mass, solve=Solve("batched_cg", 1e-10, block=64))
    signed, volume = antiperiodic(field), lattice.volume
    number, eta = np.arange(volume).reshape(4, 2, 2, 4), phases_of_milc((4, 2, 2, 4))
    J, loops, density = np.zeros((4, 4)), np.zeros((3, 4), complex), np.zeros(volume)
    for colour in range(3):
        M = staggered_matrix(signed, None, mass, colour)
        D = M - 2 * mass * np.eye(volume)
        K = D @ np.linalg.inv(4 * mass**2 * np.eye(volume) - D @ D)
        density += np.linalg.inv(M).diagonal().real
        for mu in range(4):
            hop = (eta[mu] * signed[mu, ..., colour]).ravel()
            there = ahead(number, mu).ravel()
            J[mu] -= (hop * K[there, number.ravel()]).imag.reshape(4, -1).sum(axis=1)
            if mu < 3:  # of O = (1/2) eta (U S + h. c.), with the propagator of m + D / 2
                vertex = np.zeros((volume, volume), complex)
                vertex[number.ravel(), there] = hop / 2
                loop = (vertex + vertex.conj().T) @ np.linalg.inv(M / 2)
                loops[mu] -= loop.diagonal().reshape(4, -1).sum(axis=1)
    np.testing.assert_allclose(found.current, J, atol=1e-8)
    assert about["not_included"]["operator"] == (
        "(-2 i)^2 = -4: with the continuum-normalised m + D/2 a loop of the current is -2 i J"
    )
    np.testing.assert_allclose(loops, -2j * J[:3], atol=1e-12)
    assert about["not_included"]["charges"].startswith(
        "(1/3)^2, for each of light (u + d), strange, and light -"
    )
    u, d, s = 2 / 3, -1 / 3, -1 / 3
    np.testing.assert_allclose([u + d, s], [1 / 3, -1 / 3])  # of light, of strange: J_l - J_s, times 1/3
    parity = np.indices((4, 2, 2, 4)).sum(axis=0).ravel() % 2
    for p in (0, 1):
        np.testing.assert_allclose(found.condensate[p], 2 / volume * density[parity == p].sum(), atol=1e-8)


def test_the_disconnected_correlator_of_noisy_loops() -> None:
    rng, vectors = np.random.default_rng(6), 4
    current = rng.normal(size=(vectors, 1, 3, 4, 6))
    chunks = [
        (At(config="a", noise=(n,), probe=(0,)), FlavourLoops(current[n : n + 1], np.zeros((1, 1, 3, 2))))
        for n in range(vectors)
    ]
    found = disconnected_correlator(chunks, at=At(config="a")).correlator
    J = current[:, 0, :, :3]
    for t in range(6):
        products = [
            np.mean(np.roll(J[n], -t, axis=-1) * J[m], axis=(1, 2))
            for n, m in permutations(range(vectors), 2)
        ]
        np.testing.assert_allclose(found[:, t], np.mean(products, axis=0), atol=1e-13)
