"""Channels: quantum numbers of their matrices, and equal rows on all rotations of a gauge field."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import expm

from pipeline import At
from stages.base.errors import InputError
from stages.distillation.distilled_two_point import ElementalAxes, LaphMesons, distilled_mesons
from stages.distillation.laph_average import laph_levels
from stages.distillation.operator_elementals import Elementals
from stages.distillation.perambulator import Perambulator
from stages.ensemble.configuration import GaugeLinks
from stages.ensemble.smeared_links import SmearedLinks
from stages.lqcd.analysis.gevp import levels_of
from stages.lqcd.dirac.displacement import steps_of
from stages.lqcd.kernels.gamma import GAMMA, GAMMA5
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.gammas import CHANNELS, DIRAC
from stages.lqcd.spectroscopy.little_group import Rotation, channels_at, of_family, operators_in, rotations
from stages.lqcd.spectroscopy.mesons import meson_correlators
from stages.lqcd.spectroscopy.operators import BASES, BILINEARS, MesonOperator
from stages.lqcd.spectroscopy.quark_sources import SourcePlace
from stages.lqcd.spectroscopy.staggered_operators import MULTIPLETS, SPIN_TASTES, operators_of
from stages.mesons.propagator import StaggeredPropagators
from stages.mesons.sources import staggered_sources
from stages.mesons.two_point import (
    MesonAverage,
    MesonCorrelators,
    StaggeredAverage,
    dirac_channels,
    meson_average,
    staggered_average,
    staggered_two_point,
)
from support.dense_quarks import (
    ahead,
    antiperiodic,
    as_links,
    diagonal_links,
    rotated,
    staggered_matrix,
    wilson_matrix,
)
from support.lexicographic import to_parity

pytestmark = pytest.mark.usefixtures("reference_kernels")

LATTICE, CUBE = Lattice((4, 4, 4, 2)), (8, 8, 8, 16)
STARS = (
    ((1, 0, 0), (0, -1, 0), (0, 0, 1)),
    ((1, 1, 0), (1, 0, -1), (0, 1, 1)),
    ((1, 1, 1), (1, -1, 1)),
)
MOMENTA = ((0, 0, 0), *(momentum for star in STARS for momentum in star))
FEW = ((0, 0, 0), *(momentum for star in STARS for momentum in star[:2]))
TASTES = ("pion5", "pioni5", "pioni", "rhoi", "rhois")
ORIGIN = "x0y0z0t0"


def matrix_of(rotation: Rotation) -> NDArray:
    matrix = np.zeros((3, 3), int)
    for axis, (image, sign) in enumerate(rotation):
        matrix[image, axis] = sign
    return matrix


TURNS = [each for each in rotations((4, 4, 4)) if round(np.linalg.det(matrix_of(each))) == 1]


def families(given: dict) -> dict:
    return {name: [(label,) for label in labels] for name, labels in given.items()}


# The contents of channels


def test_channels_are_all_matrices_of_their_quantum_numbers() -> None:
    """J from commutators with the generators, P from gamma_t, C from the transpose, chirality from gamma5."""
    C = GAMMA[1] @ GAMMA[3]
    spins = [0.5j * GAMMA[i] @ GAMMA[j] for i, j in ((1, 2), (2, 0), (0, 1))]

    def factor(image: NDArray, of: NDArray) -> int:
        ratio = np.vdot(of, image) / np.vdot(of, of)
        np.testing.assert_allclose(image, ratio * of, atol=1e-14)
        return round(ratio.real)

    numbers = {}
    for name, G in DIRAC.items():
        casimir = sum(s @ s @ G - 2 * s @ G @ s + G @ s @ s for s in spins)
        charge = C @ G.T @ np.linalg.inv(C)
        images = (casimir, GAMMA[3] @ G @ GAMMA[3], charge, GAMMA5 @ G @ GAMMA5)
        numbers[name] = tuple(factor(image, G) for image in images)
    expected = {  # J (J + 1), P, C, chirality
        "pion": (0, -1, 1, 1),
        "pion, A_t": (0, -1, 1, -1),
        "rho": (2, -1, -1, -1),
        "rho, T_ti": (2, -1, -1, 1),
        "a0": (0, 1, 1, 1),
        "a1": (2, 1, 1, -1),
        "b1": (2, 1, -1, 1),
    }
    assert list(CHANNELS) == list(expected)
    for channel, quantum in expected.items():
        assert {name for name, found in numbers.items() if found == quantum} == set(CHANNELS[channel]), (
            channel
        )
    assert numbers["GammaT"] == (0, 1, -1, -1)  # 0+-, which is in no channel


def test_names_and_rows() -> None:
    channels = channels_at(families(CHANNELS), [(0, 0, 0), (0, 0, 2), (1, 0, -1), (2, 1, 0)], CUBE, BILINEARS)
    labels = list(channels)
    assert of_family("rho", labels) == [
        "rho",
        "rho, longitudinal",
        "rho, transverse",
        "rho, transverse axis",
        "rho, transverse diagonal",
        "rho, transverse (1,-2,0)",
    ]
    rows = {
        name: [{row.operators[0]: row.weight for row in each} for each in channels[name]] for name in labels
    }
    third = 1 / 3
    assert rows["b1"] == [{"SigmaXY": third, "SigmaXZ": third, "SigmaYZ": third}, {}, {}, {}]
    assert rows["b1, longitudinal"][1] == {"SigmaXY": 1} and rows["b1, transverse"][1] == {
        "SigmaYZ": 0.5,
        "SigmaXZ": 0.5,
    }
    assert rows["a1, longitudinal"][2] == {"GammaXGamma5 - GammaZGamma5": 0.5}
    assert rows["b1, longitudinal"][2] == {"SigmaYZ - SigmaXY": 0.5}
    assert rows["b1, longitudinal"][3] == {"2 SigmaYZ - SigmaXZ": 0.2}  # the y component is SigmaZX
    assert rows["rho, transverse axis"] == [{}, {}, {"GammaY": 1}, {"GammaZ": 1}]
    assert all(rows[name] == [{CHANNELS[name][0]: 1}] * 4 for name in ("pion", "pion, A_t", "a0"))
    assert dirac_channels([(0, 0, 0)], CUBE) == (tuple(DIRAC), tuple(CHANNELS))
    gammas, _ = dirac_channels([(0, 0, 0), (0, 1, 0)], CUBE)
    assert gammas == tuple(DIRAC)  # sums only where a direction is no axis


def test_a_box_has_fewer_rotations_than_a_cube() -> None:
    box, rho = (8, 8, 6, 16), families({"rho": CHANNELS["rho"]})
    found = channels_at(rho, [(1, 0, 0), (0, 0, 1), (1, 0, 1)], box, BILINEARS)
    assert {name: [len(each) for each in rows] for name, rows in found.items()} == {
        "rho, longitudinal": [1, 1, 1],
        "rho, transverse y": [1, 0, 0],
        "rho, transverse z": [1, 0, 0],
        "rho, transverse": [0, 2, 0],
        "rho, transverse axis": [0, 0, 1],
        "rho, transverse (4,0,-3)": [0, 0, 1],
    }
    assert found["rho, longitudinal"][2][0].operators == ("3 GammaX + 4 GammaZ",)  # p = 2 pi (1/8, 0, 1/6)


def test_components_of_pi_mix_no_directions() -> None:
    """Half the extent is its own negative: a reflection keeps it, and x is apart from y at (pi, p, 0)."""
    rho, small = families({"rho": CHANNELS["rho"]}), (4, 4, 4, 8)
    found = channels_at(rho, [(2, 1, 0), (-2, 1, 1), (2, 2, 1), (2, 0, 0), (2, 2, 0)], small, BILINEARS)
    rows = {name: [[row.operators[0] for row in each] for each in rows] for name, rows in found.items()}
    assert rows["rho, longitudinal"][:4] == [["GammaY"], ["GammaY + GammaZ"], ["GammaZ"], ["GammaX"]]
    assert rows["rho, transverse x"] == [["GammaX"], [], [], [], []]
    assert rows["rho, transverse axis"][1] == ["GammaX"]
    assert sorted(rows["rho, transverse"][2]) == ["GammaX", "GammaY"] and len(rows["rho, transverse"][3]) == 2
    assert rows["rho, transverse axis"][4] == ["GammaZ"]  # not averaged with the diagonal


def test_a_box_splits_mesons_at_rest() -> None:
    """Directions of different extents are not equivalent; families that a cube does not relate stay whole."""
    box, rest, own = (6, 4, 4, 8), [(0, 0, 0)], {"own": [("Gamma5",), ("GammaX",)]}
    given = {**families(CHANNELS), **own, "two": [("GammaX",), ("GammaY",)]}
    found = channels_at(given, rest, box, BILINEARS)
    rows = {name: [row.operators[0] for row in each[0]] for name, each in found.items()}
    assert rows["rho, x"] == ["GammaX"] and rows["rho, yz"] == ["GammaY", "GammaZ"]
    assert rows["b1, x"] == ["SigmaYZ"] and rows["b1, yz"] == ["SigmaXY", "SigmaXZ"]
    assert rows["own"] == ["Gamma5", "GammaX"] and rows["two, x"] == ["GammaX"] and "rho" not in rows
    assert of_family("rho", list(found)) == ["rho, x", "rho, yz"]
    assert of_family("pion", list(found)) == ["pion"]
    gammas, channels = dirac_channels(rest, box)
    assert gammas == tuple(DIRAC) and list(channels)[:4] == ["pion", "pion, A_t", "rho, x", "rho, yz"]
    tastes = channels_at(families(MULTIPLETS), rest, (4, 6, 8, 8), SPIN_TASTES)
    assert [name for name in tastes if name.startswith("pionij")] == ["pionij, x", "pionij, y", "pionij, z"]
    bases = channels_at({"rho": BASES["rho"]}, rest, box, BILINEARS)
    assert {name: len(rows[0]) for name, rows in bases.items()} == {"rho, x": 1, "rho, yz": 2}
    assert all(row.weight == 0.5 for row in bases["rho, yz"][0])


def test_rows_that_are_no_vector_are_not_averaged() -> None:
    given = {"own": [("Gamma5",), ("GammaX",), ("GammaY",)], "two": [("GammaX",), ("GammaY",)]}
    found = channels_at(given, [(0, 0, 0), (1, 1, 0)], CUBE, BILINEARS)
    assert {name: [len(each) for each in rows] for name, rows in found.items()} == {
        "own": [3, 0],
        "own, row 1": [0, 1],
        "own, row 2": [0, 1],
        "own, row 3": [0, 1],
        "two": [2, 0],
        "two, row 1": [0, 1],
        "two, row 2": [0, 1],
    }


# Operators under rotations, by dense matrices


def bilinear(text: str, phases: NDArray, momentum: tuple[int, ...]) -> NDArray:
    """exp(-ipx) G D ``[site, spin, site, spin]`` of one colour."""
    u, number = phases[..., 0], np.arange(phases[0, ..., 0].size).reshape(phases.shape[1:5])
    place = np.indices(number.shape)[::-1].reshape(4, -1)[:3]
    wave = np.exp(-2j * np.pi * (np.array(momentum) @ place) / 4)
    total = np.zeros((number.size, 4, number.size, 4), complex)
    for factor, gamma, word in MesonOperator.parse(text).terms:
        D = np.eye(number.size, dtype=complex)
        for mu, step in steps_of(word):
            hop = np.zeros_like(D)
            hop[number.ravel(), ahead(number, mu).ravel()] = u[mu].ravel()
            D = D @ (hop if step > 0 else hop.conj().T)
        total += factor * np.einsum("x,xy,ab->xayb", wave, D, DIRAC[gamma])
    return total


@pytest.mark.parametrize("rotation", TURNS[::5])
@pytest.mark.parametrize(
    "text", ["SigmaXZ[+x-y]", "GammaYGamma5 - 2 SigmaYT[+z]", "0.5 Identity[+y] + GammaZ"]
)
def test_text_of_a_rotated_operator(text: str, rotation: Rotation) -> None:
    """O[U^R, Rp] of the rotated text is R O[U, p] R^-1, with the spin's rotation from its generator."""
    lattice = Lattice((4, 4, 4, 2))
    phases, momentum = diagonal_links(lattice, 5), np.array([1, -1, 0])
    R = matrix_of(rotation)
    angle = np.arccos(np.clip((np.trace(R) - 1) / 2, -1, 1))
    values, vectors = np.linalg.eig(R)
    axis = vectors[:, np.argmin(abs(values - 1))].real
    skew = (R - R.T) / 2
    if np.dot(axis, [skew[2, 1], skew[0, 2], skew[1, 0]]) < 0:
        axis = -axis
    pairs = ((1, 2), (2, 0), (0, 1))
    spin = expm(-0.5 * angle * sum(n * GAMMA[i] @ GAMMA[j] for n, (i, j) in zip(axis, pairs, strict=True)))
    number = np.arange(128).reshape(2, 4, 4, 4)
    t, z, y, x = np.indices(number.shape).reshape(4, -1)
    x2, y2, z2 = (R @ np.stack([x, y, z])) % 4
    target = number[t, z2, y2, x2]
    expected = np.empty((128, 4, 128, 4), complex)
    inner = np.einsum("ab,xbyc,cd->xayd", spin, bilinear(text, phases, tuple(momentum)), np.linalg.inv(spin))
    expected[np.ix_(target, range(4), target, range(4))] = inner
    terms = BILINEARS.turned(text, rotation)
    turned = " ".join(
        f"{'+' if c > 0 else '-'} {abs(c)} {gamma}[{word}]" for (gamma, word), c in terms.items()
    )
    found = bilinear(turned, rotated(phases, rotation), tuple(R @ momentum))
    np.testing.assert_allclose(found, expected, atol=1e-13)


# Channels on all rotations of a field


@pytest.fixture(scope="module")
def wilson() -> tuple[MesonAverage, list[str]]:
    """Averages over all 24 rotations of one field, and the names of the matrices measured."""
    gammas, channels = dirac_channels(MOMENTA, LATTICE.extents)
    field, place, chunks = diagonal_links(LATTICE, 11), SourcePlace.parse(ORIGIN), []
    for number, rotation in enumerate(TURNS):
        S = np.zeros((128, 4, 3, 4, 3), complex)
        for colour in range(3):
            M = wilson_matrix(rotated(field, rotation), 0.3, colour).reshape(512, 512)
            S[:, :, colour, :, colour] = np.linalg.solve(M, np.eye(512, 4)).reshape(128, 4, 4)
        column = to_parity(S.reshape(2, 4, 4, 4, 12, 12), LATTICE)
        made = meson_correlators(column, LATTICE, place, gammas, MOMENTA)
        nothing = np.zeros((1, 12))
        chunks.append(
            (At(config=f"{number}", source=(ORIGIN,)), MesonCorrelators(made[None], *3 * (nothing,)))
        )
    options = {"momenta": MOMENTA, "gammas": gammas, "channels": channels}
    with pytest.raises(InputError, match=r"are channels of mesons at rest, and at the momentum \[1, 0, 0\]"):
        meson_average(chunks, at=At(), momenta=MOMENTA, gammas=gammas)
    return meson_average(chunks, at=At(), **options), list(gammas)


def alike(found: NDArray, rtol: float = 1e-11) -> bool:
    """True if correlators ``[row, time]`` are the same."""
    return bool(np.allclose(found, found[0], rtol=rtol, atol=rtol * np.abs(found).max()))


@pytest.mark.parametrize("family", CHANNELS)
def test_channels_of_equivalent_momenta_are_equal(family, wilson):
    average, gammas = wilson
    channels = dirac_channels(MOMENTA, LATTICE.extents)[1]
    for star in STARS:
        here = [MOMENTA.index(momentum) for momentum in star]
        names = [n for n in of_family(family, list(channels)) if channels[n][here[0]]]
        assert len(names) == {1: 1, 3: 3 if star == STARS[1] else 2}[len(CHANNELS[family])]
        values = average.channel_correlator[[list(channels).index(name) for name in names]][:, here]
        for channel in values:
            assert alike(channel)
        assert not any(alike(pair, 1e-3) for pair in values[:, :1].transpose(1, 0, 2) if len(names) > 1)
        for name in names:  # the rows of one channel, normalised
            for momentum in here:
                rows = channels[name][momentum]
                each = [len(rows) * w * average.correlator[gammas.index(g), momentum] for (g,), w in rows]
                assert alike(np.array(each)), (name, MOMENTA[momentum])
    rest = [average.correlator[gammas.index(name), 0] for name in CHANNELS[family]]
    assert alike(np.array(rest))
    found = average.channel_correlator[list(channels).index(family), 0]
    np.testing.assert_allclose(found, np.mean(rest, axis=0), rtol=1e-13)


def test_the_axes_are_a_mixture_at_a_diagonal_momentum(wilson: tuple[MesonAverage, list[str]]) -> None:
    """GammaX and GammaY at (1, 1, 0) are equal, and are half of two channels each."""
    average, gammas = wilson
    channels, at = list(dirac_channels(MOMENTA, LATTICE.extents)[1]), MOMENTA.index((1, 1, 0))
    x, y = (average.correlator[gammas.index(name), at] for name in ("GammaX", "GammaY"))
    along, across = (
        average.channel_correlator[channels.index(f"rho, {word}"), at]
        for word in ("longitudinal", "transverse diagonal")
    )
    np.testing.assert_allclose(x, y, rtol=1e-11)
    np.testing.assert_allclose(x, (along + across) / 2, rtol=1e-11)
    assert np.abs(along / across - 1).max() > 0.005


@pytest.fixture(scope="module")
def staggered() -> tuple[StaggeredAverage, list[str], dict]:
    """Averages over all 24 rotations of one field, in naive staggered quarks."""
    chosen = {name: MULTIPLETS[name] for name in TASTES}
    channels = channels_at(families(chosen), FEW, LATTICE.extents, SPIN_TASTES)
    labels = operators_of(TASTES)
    measured = tuple(dict.fromkeys([*labels, *operators_in(channels)]))
    field, chunks = diagonal_links(LATTICE, 13), []
    for number, rotation in enumerate(TURNS):
        turned, at = rotated(field, rotation), At(config=f"{number}", source=(ORIGIN,))
        links = as_links(turned, LATTICE)
        gauge, smeared = GaugeLinks(links, np.array(LATTICE.extents)), SmearedLinks(links, LATTICE)
        sources = staggered_sources(gauge, smeared, at=at, operators=labels).fields
        fields = np.zeros((128, 3, *sources.shape[3:]), complex)
        order = np.argsort(np.concatenate([LATTICE.lexicographic(parity) for parity in (0, 1)]))
        by_site = sources.reshape(128, *sources.shape[2:])[order]
        for colour in range(3):
            M = staggered_matrix(antiperiodic(turned), None, 0.2, colour)
            fields[:, colour] = np.linalg.solve(M, by_site[:, colour].reshape(128, -1)).reshape(
                fields[:, 0].shape
            )
        solved = to_parity(fields.reshape(2, 4, 4, 4, *fields.shape[1:]), LATTICE)
        nothing = np.zeros((1, solved.shape[-1]))
        made = staggered_two_point(
            StaggeredPropagators(solved, *3 * (nothing,)),
            smeared,
            at=at,
            extents=LATTICE.extents,
            operators=measured,
            momenta=FEW,
        )
        chunks.append((at, made))
    average = partial(staggered_average, chunks, at=At(), operators=measured, momenta=FEW)
    with pytest.raises(InputError, match="are channels of mesons at rest"):
        average(channels=TASTES)
    return average(channels=channels), list(measured), channels


@pytest.mark.slow
@pytest.mark.parametrize("family", TASTES)
def test_staggered_channels_of_equivalent_momenta_are_equal(family, staggered):
    average, measured, channels = staggered
    for star in ((FEW[0],), *STARS):
        here = [FEW.index(momentum) for momentum in star[:2]]
        names = [n for n in of_family(family, list(channels)) if channels[n][here[0]]]
        for name in names:
            assert alike(average.channel_correlator[list(channels).index(name), here]), (name, star)
            for momentum in here:
                rows = channels[name][momentum]
                each = [len(rows) * w * average.correlator[measured.index(g), momentum] for (g,), w in rows]
                assert alike(np.array(each)), (name, FEW[momentum])
        if star == STARS[0] and len(MULTIPLETS[family]) == 3:
            assert names == [f"{family}, longitudinal", f"{family}, transverse"]
    diagonal = [n for n in of_family(family, list(channels)) if channels[n][FEW.index((1, 1, 1))]]
    assert len(diagonal) == 1 + (family == "rhois")


# Correlation matrices and levels


def distilled(phases: NDArray, operators: tuple[str, ...], words: tuple[str, ...]) -> NDArray:
    """The matrix ``[momentum, A, B, time]`` of a field, in the space of all sites of one colour."""
    S = np.linalg.inv(wilson_matrix(phases, 0.3, 0).reshape(512, 512)).reshape(2, 64, 4, 2, 64, 4)
    site = np.arange(64)
    place = np.indices((4, 4, 4)).reshape(3, 64)[::-1]
    waves = np.exp(2j * np.pi * np.array(FEW) @ place / 4)
    values = np.empty((2, len(FEW), len(words), 64, 64), complex)
    for t, (number, word) in product(range(2), enumerate(words)):
        D = np.eye(64, dtype=complex)
        for mu, step in steps_of(word):
            hop = np.zeros_like(D)
            hop[site, np.roll(site.reshape(4, 4, 4), -1, 2 - mu).ravel()] = phases[mu, t, ..., 0].ravel()
            D = hop if step > 0 else hop.conj().T
        values[t, :, number] = waves[:, :, None] * D
    tau, nothing = S[:, :, :, 0].transpose(0, 2, 1, 4, 3), np.zeros((1, 4, 64))
    made = distilled_mesons(
        Perambulator(tau[None], np.zeros(1, int), nothing, nothing),
        Elementals(values, np.array(FEW)),
        at=At(config="a", source=("t0",)),
        axes=ElementalAxes(LATTICE.extents, words),
        momenta=FEW,
        operators=operators,
    )
    return made.matrix[0]


@pytest.mark.slow
def test_correlation_matrices_of_equivalent_momenta_are_equal() -> None:
    """Of the vector and the derivative of `rho`, two operators a row, averaged over all rotations."""
    channels = channels_at({"rho": BASES["rho"]}, FEW, LATTICE.extents, BILINEARS)
    operators, words = operators_in(channels), ("", "+x", "-x", "+y", "-y", "+z", "-z")
    field = diagonal_links(LATTICE, 19)
    C = np.mean([distilled(rotated(field, turn), operators, words) for turn in TURNS], axis=0)
    for star in ((FEW[0],), *STARS):
        here = [FEW.index(momentum) for momentum in star[:2]]
        found = {}
        for name, rows in channels.items():
            for momentum in here if rows[here[0]] else []:
                for texts, weight in rows[momentum]:
                    row = [operators.index(text) for text in texts]
                    matrix = len(rows[momentum]) * weight * C[momentum][np.ix_(row, row)]
                    expected = found.setdefault(name, matrix)
                    np.testing.assert_allclose(matrix, expected, atol=1e-12 * np.abs(expected).max())
        first, *others = found.values()
        assert all(np.abs(first - each).max() > 1e-4 * np.abs(first).max() for each in others)


def test_levels_of_moving_channels() -> None:
    """Of longitudinal and transverse operators of the basis `rho`, from the matrix of x, y and z."""
    momenta = ((0, 0, 0), (0, 1, 0), (1, 1, 0))
    channels = channels_at({"rho": BASES["rho"]}, momenta, CUBE, BILINEARS)
    base = tuple(text for row in BASES["rho"] for text in row)  # vector and derivative of x, of y, of z
    operators = tuple(dict.fromkeys([*base, *operators_in(channels)]))
    rng, times = np.random.default_rng(77), 6
    psi = rng.normal(size=(3, 6, 6)) + np.eye(6)
    decay = np.exp(-np.outer(np.linspace(0.3, 2, 6), np.arange(times)))
    C = np.einsum("pan,pbn,nt->pabt", psi, psi, decay)
    sums = np.zeros((len(operators), 6))
    sums[:6] = np.eye(6)
    for k, text in enumerate(operators[6:], 6):
        pair = (0, 2) if "Gamma" in text else (1, 3)
        sums[k, pair[0]], sums[k, pair[1]] = (
            1,
            -1 if " - Gamma" in text or "- 0.5 Identity[+y]" in text else 1,
        )
    matrix = np.einsum("ai,bj,pijt->pabt", sums, sums, C)[None] + 0j
    chunk = (
        At(config="a", source=("t0",)),
        LaphMesons(np.zeros((1, 16, 3, 6)), matrix, np.zeros(1), np.zeros((1, 2))),
    )
    found = laph_levels([chunk], at=At(), momenta=momenta, operators=operators, bases=channels, t0=1)
    names = list(channels)
    assert names == ["rho"] + [f"rho, {w}" for w in ("longitudinal", "transverse", "transverse axis")] + [
        "rho, transverse diagonal"
    ]

    def expected(momentum: int, rows: list[NDArray]) -> NDArray:
        mean = np.mean([np.einsum("ai,bj,ijt->abt", e, e, C[momentum]) for e in rows], axis=0)
        return levels_of(mean, 1).values

    x, y, z = (np.eye(6)[[k, k + 1]] for k in (0, 2, 4))
    cases = {
        ("rho", 0): [x, y, z],
        ("rho, longitudinal", 1): [y],
        ("rho, transverse", 1): [x, z],
        ("rho, longitudinal", 2): [(x + y) / 2**0.5],
        ("rho, transverse axis", 2): [z],
        ("rho, transverse diagonal", 2): [(x - y) / 2**0.5],
    }
    for number, name in enumerate(names):
        for momentum in range(3):
            values = found.eigenvalue[momentum, found.basis == number]
            if (name, momentum) in cases:
                np.testing.assert_allclose(values, expected(momentum, cases[name, momentum]), rtol=1e-10)
            else:
                assert np.isnan(values).all()
    with pytest.raises(InputError, match=r"are channels of mesons at rest, and at the momentum \[0, 1, 0\]"):
        laph_levels([chunk], at=At(), momenta=momenta, operators=operators, bases=[BASES["rho"]], t0=1)
