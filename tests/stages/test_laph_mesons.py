"""Stages of distilled mesons, called as functions: from perambulators and from noise, averages, levels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from pipeline import At
from stages.base.errors import InputError
from stages.distillation.distilled_two_point import (
    ElementalAxes,
    LaphMesons,
    distilled_mesons,
    stochastic_mesons,
)
from stages.distillation.laph_average import laph_average, laph_levels
from stages.distillation.operator_elementals import Elementals
from stages.distillation.perambulator import Perambulator, SinkProjection, stochastic_columns
from stages.lqcd.spectroscopy.gammas import NAMES
from stages.lqcd.spectroscopy.little_group import Row
from stages.mesons.two_point import dirac_channels

EXTENTS, K, STORED = (4, 4, 4, 6), 4, 5
TIMES = EXTENTS[3]
MOMENTA, WORDS = ((0, 0, 0), (1, 0, 0)), ("", "+x", "-x")
OPERATORS = ("Gamma5", "GammaX", "0.5 Identity[+x] - 0.5 Identity[-x]", "GammaTGamma5")
OPTIONS = {"axes": ElementalAxes(EXTENTS, WORDS), "momenta": MOMENTA, "operators": OPERATORS}
FULL = {"time": "full", "spin": "full", "eigenvector": "full"}


def random(seed: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


@pytest.fixture(scope="module")
def elementals() -> Elementals:
    """Of one eigenvector more than there are sources; 1 at rest, shifts that are each other's adjoints."""
    values = random(3, TIMES, 2, 3, STORED, STORED)
    values[:, 0, 0] = np.eye(STORED)
    values[:, 0, 2] = values[:, 0, 1].conj().swapaxes(1, 2)
    return Elementals(values, np.array(MOMENTA))


def perambulator(times: tuple[int, ...]) -> Perambulator:
    tau = np.stack([random(time, TIMES, 4, STORED, 4, K) for time in times])
    residual = np.zeros((len(times), 4, K))
    return Perambulator(tau, np.array(times), residual, residual)


def full_mesons(elementals: Elementals, *times: int) -> LaphMesons:
    at = At(config="c.1", source=tuple(f"t{time}" for time in times))
    return distilled_mesons(perambulator(times), elementals, at=at, **OPTIONS)


def test_full_distillation(elementals) -> None:
    """A matrix has the correlators of its operators; the pion at rest is a norm of the perambulator."""
    both, alone = full_mesons(elementals, 5, 2), full_mesons(elementals, 2)
    assert both.correlator.shape == (2, 16, 2, TIMES) and both.matrix.shape == (2, 2, 4, 4, TIMES)
    assert both.source_time.tolist() == [5, 2] and both.noise.tolist() == [[-1, -1]] * 2
    np.testing.assert_allclose(both.correlator[1], alone.correlator[0], rtol=1e-12)
    np.testing.assert_allclose(both.matrix[1], alone.matrix[0], rtol=1e-12)

    made = full_mesons(elementals, 3)
    for number in (0, 1, 3):
        of_gamma = made.correlator[0, NAMES.index(OPERATORS[number])]
        np.testing.assert_allclose(made.matrix[0, :, number, number], of_gamma, rtol=1e-12)

    tau = perambulator((4,)).perambulator[0, :, :, :K]
    norms = np.roll((np.abs(tau) ** 2).sum(axis=(1, 2, 3, 4)), -4)
    found = full_mesons(elementals, 4).correlator[0, NAMES.index("Gamma5"), 0]
    np.testing.assert_allclose(found, norms, rtol=1e-12)


@dataclass
class Noise:
    """Projections of noise vectors at two starts, in chunks of two sources: a chunk may hold both starts."""

    projections: list
    columns: list


def noise(dilution: dict[str, str], vectors: int = 3) -> Noise:
    given = Noise([], [])
    labels = [f"t{time}n{number}" for time in (1, 2) for number in range(vectors)]
    for pair in (labels[n : n + 2] for n in range(0, len(labels), 2)):
        at = At(config="c.1", source=pair)
        named = stochastic_columns(
            at=at, time_extent=TIMES, eigenvectors=K, dilution=dilution, kind="z4", seed=9
        )
        width, made = len(named) // len(pair), []
        for number in range(len(pair)):
            block = range(number * width, (number + 1) * width)
            taus = ((random(t, TIMES, 4, STORED, 4, K), named.on_slice(t, block)) for t in named.times(block))
            made.append(sum(np.einsum("tsiuj,ujn->tsin", tau, rho) for tau, rho in taus))
        residual = np.zeros((len(pair), width))
        given.projections.append((at, SinkProjection(np.stack(made), residual, residual)))
        given.columns.append((at, named))
    return given


def test_full_dilution_gives_full_distillation_for_each_pair(elementals) -> None:
    given = noise(FULL)
    found = stochastic_mesons(given.projections, given.columns, elementals, at=At(config="c.1"), **OPTIONS)
    assert found.source_time.tolist() == [1] * 3 + [2] * 3
    assert found.noise.tolist() == [[0, 1], [0, 2], [1, 2]] * 2
    expected = full_mesons(elementals, 1, 2)
    for each in (0, 2, 5):
        start = 0 if each < 3 else 1
        largest = np.abs(expected.matrix).max()
        assert np.abs(found.matrix[each] - expected.matrix[start]).max() < 1e-12 * largest
        assert np.abs(found.correlator[each] - expected.correlator[start]).max() < 1e-12 * largest


def test_starts_of_noise(elementals) -> None:
    given = noise({**FULL, "time": "interlace-3"}, vectors=2)
    found = stochastic_mesons(given.projections, given.columns, elementals, at=At(config="c.1"), **OPTIONS)
    assert found.source_time.tolist() == [1, 4, 2, 5] and found.noise.tolist() == [[0, 1]] * 4

    given = noise(FULL, vectors=1)
    with pytest.raises(InputError, match=r"source at t = 1 has one noise vector, .* take 2 vectors or more"):
        stochastic_mesons(given.projections, given.columns, elementals, at=At(config="c.1"), **OPTIONS)


ENERGIES = np.array([0.4, 0.9])


def synthetic(config: int) -> LaphMesons:
    """Two states in two rows of two operators, with noise; two sources."""
    rng = np.random.default_rng(config)
    psi = np.random.default_rng(1).normal(size=(2, 2))
    C = np.einsum("an,bn,nt->abt", psi, psi, np.exp(-np.outer(ENERGIES, np.arange(8))))
    matrix = np.zeros((2, 2, 4, 4, 8), complex)
    matrix[:, :, :2, :2] = matrix[:, :, 2:, 2:] = C
    matrix *= 1 + 1e-3 * rng.normal(size=matrix.shape)
    correlator = np.exp(-0.4 * np.arange(8)) * (1 + 1e-2 * rng.normal(size=(2, 16, 2, 8))) + 0j
    return LaphMesons(correlator, matrix, np.arange(2), np.full((2, 2), -1))


FOUR = ("Gamma5", "GammaX", "GammaY", "GammaZ")
BASES = ((("Gamma5", "GammaX"), ("GammaY", "GammaZ")), (("GammaX",),))


def chunks(count: int = 12) -> list[tuple[At, LaphMesons]]:
    return [(At(config=f"c.{n}", source=("t0", "t4")), synthetic(n)) for n in range(count)]


def test_average_is_that_of_mesons() -> None:
    _, channels = dirac_channels(MOMENTA, EXTENTS)
    found = laph_average(chunks(), at=At(), momenta=MOMENTA, jackknife_bin=2, channels=channels)
    means = np.array([each.correlator.real.mean(axis=0) for _, each in chunks()])
    np.testing.assert_allclose(found.correlator, means.mean(axis=0), rtol=1e-13)
    binned = means.reshape(6, 2, *means.shape[1:]).mean(axis=1)
    np.testing.assert_allclose(found.correlator_error, binned.std(axis=0, ddof=1) / np.sqrt(6), rtol=1e-10)
    pion = found.effective_mass[0, :, 1:-1]
    assert (np.abs(pion - 0.4) < 5 * found.effective_mass_error[0, :, 1:-1]).all()


def test_levels_of_bases() -> None:
    at = At()
    by_name = {
        name: [[Row(row, 1 / len(basis)) for row in basis]] * 2
        for name, basis in zip("ab", BASES, strict=True)
    }
    found = laph_levels(chunks(), at=at, momenta=MOMENTA, operators=FOUR, bases=by_name, t0=1)
    assert found.energy.shape == (2, 3, 8) and found.basis.tolist() == [0, 0, 1]
    assert at.statistics["bins"] == 12
    pulls = (found.energy[:, :2, 2:5] - ENERGIES[:, None]) / found.energy_error[:, :2, 2:5]
    assert np.abs(pulls).max() < 4.5 and np.abs(pulls).max() > 0.5
    single = np.mean([each.matrix.mean(axis=0) for _, each in chunks()], axis=0)[:, 1, 1].real
    np.testing.assert_allclose(found.eigenvalue[:, 2], single / single[:, 1:2], rtol=1e-12)


@pytest.mark.parametrize(
    ("bases", "message"),
    [
        (((("Gamma5", "SigmaXY"),),), "operator 'SigmaXY' of a basis is none of those .* Gamma5, GammaX"),
        (((("Gamma5",), ("GammaX", "GammaY")),), "rows of a basis, .* have one length"),
        (((),), "rows of a basis, .* have one length"),
        (((("Gamma5", "Gamma5"),),), r"Gamma5, Gamma5 at momentum \[0, 0, 0\]: .* t0 = 1 .* not positive"),
    ],
)
def test_bases_that_are_none(bases, message) -> None:
    with pytest.raises(InputError, match=message):
        laph_levels(chunks(3), at=At(), momenta=MOMENTA, operators=FOUR, bases=bases, t0=1)
