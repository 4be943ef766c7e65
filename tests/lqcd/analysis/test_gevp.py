"""The generalised eigenvalue problem on synthetic spectra, whose answers are known."""

import numpy as np
import pytest
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.lqcd.analysis.gevp import levels_of, spectrum
from stages.lqcd.analysis.jackknife import jackknife_samples
from support.refusals import refuses

ENERGIES = np.array([0.31, 0.52, 0.83, 1.1])


def amplitudes(operators: int, states: int, seed: int = 8) -> NDArray[np.complex128]:
    """<0|O_A|n>, complex."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(operators, states)) + 1j * rng.normal(size=(operators, states))


def correlator(psi: NDArray, energies: NDArray, times: int) -> NDArray[np.complex128]:
    decays = np.exp(-np.outer(energies, np.arange(times)))
    return np.einsum("an,bn,nt->abt", psi, psi.conj(), decays)


@pytest.mark.parametrize("t0", [0, 2, 5])
def test_as_many_states_as_operators_is_exact(t0: int) -> None:
    psi, energies = amplitudes(3, 3), ENERGIES[:3]
    C = correlator(psi, energies, 14)
    found = levels_of(C, t0)
    expected = np.exp(-np.outer(energies, np.arange(14) - t0))
    np.testing.assert_allclose(found.values, expected, rtol=1e-9)
    # v_n is orthogonal to all other states' amplitudes, and normalised by C(t0)
    overlaps = np.abs(psi.conj().T @ found.vectors[t0 + 3])
    np.testing.assert_allclose(overlaps, np.diag(np.exp(energies * t0 / 2)), atol=1e-9)


def test_both_triangles_of_a_noisy_matrix_count_alike() -> None:
    """An anti-Hermitian part, which only noise has, changes nothing; each triangle has half the numbers."""
    C, rng = correlator(amplitudes(3, 4), ENERGIES, 12), np.random.default_rng(9)
    noise = 1e-3 * rng.normal(size=(5, *C.shape, 2)).view(complex)[..., 0]
    noise *= np.exp(-0.3 * np.arange(12))
    noise[..., [0, 1, 2], [0, 1, 2], :] = 0
    adjoint = noise.conj().swapaxes(1, 2)
    averaged, lower = levels_of(C + (noise + adjoint) / 2, 1), levels_of(C + noise, 1)
    np.testing.assert_allclose(lower.values, averaged.values, rtol=1e-12)
    np.testing.assert_allclose(levels_of(C + adjoint, 1).values, averaged.values, rtol=1e-12)
    found = spectrum(C + noise[0], jackknife_samples(C + noise), 1)
    expected = spectrum(C + adjoint[0], jackknife_samples(C + adjoint), 1)
    np.testing.assert_allclose(found.eigenvalue_error, expected.eigenvalue_error, rtol=1e-8)


def test_periodic_lattice_has_the_energy_of_the_cosh() -> None:
    """One operator and one state, forwards and backwards."""
    t = np.arange(16)
    C = np.cosh(0.4 * (t - 8))[None, None]
    found = spectrum(C, np.stack([C, C]), 3)
    np.testing.assert_allclose(found.energy[0, 1:-1], 0.4, rtol=1e-10)
    assert found.energy_error[0, 1:-1].max() < 1e-10


def test_a_single_configuration_has_energies_and_no_errors() -> None:
    C = correlator(amplitudes(3, 3), ENERGIES[:3], 14)
    found = spectrum(C, jackknife_samples(C[None]), 2)
    np.testing.assert_array_equal(found.eigenvalue, levels_of(C, 2).values)
    assert np.isfinite(found.energy[:, 1:-1]).all()
    assert np.isnan(found.energy_error).all() and np.isnan(found.eigenvalue_error).all()


def corrections(level: int, pairs: list[tuple[int, int]]) -> NDArray:
    """|E_n(t, t0) - E_n| with two operators and four states, at some (t, t0)."""
    C = correlator(amplitudes(2, 4), ENERGIES, 60)
    found = [spectrum(C, np.stack([C, C]), t0).energy[level, t] for t, t0 in pairs]
    return np.abs(np.array(found) - ENERGIES[level])


@pytest.mark.parametrize("level", [0, 1])
def test_corrections_of_more_states_fall_as_the_theory_says(level: int) -> None:
    """With t0 = t / 2 by the gap to the first state beyond the operators."""
    t = np.array([12, 16, 20])
    made = corrections(level, [(each, each // 2) for each in t])
    slopes = -np.diff(np.log(made)) / np.diff(t)
    np.testing.assert_allclose(slopes, ENERGIES[2] - ENERGIES[level], rtol=0.1)


def test_corrections_at_fixed_t0_fall_by_the_smallest_gap() -> None:
    t = np.array([30, 35, 40])
    made = corrections(0, [(each, 1) for each in t])
    slopes = -np.diff(np.log(made)) / np.diff(t)
    np.testing.assert_allclose(slopes, ENERGIES[1] - ENERGIES[0], rtol=0.01)


def test_any_basis_of_the_operators_gives_the_same() -> None:
    C = correlator(amplitudes(3, 4), ENERGIES, 12)
    mixing = amplitudes(3, 3, seed=5) * np.array([[1], [1e-4], [1e3]])
    mixed = np.einsum("ac,cdt,bd->abt", mixing, C, mixing.conj())
    found, other = levels_of(C, 2), levels_of(mixed, 2)
    np.testing.assert_allclose(other.values, found.values, rtol=1e-8)
    # the same states: v' = A^-H v up to phases
    back = mixing.conj().T @ other.vectors[4]
    ratio = back / found.vectors[4]
    np.testing.assert_allclose(ratio, np.ones((3, 1)) * ratio[:1], rtol=1e-6)
    np.testing.assert_allclose(np.abs(ratio), 1, rtol=1e-6)


def test_levels_that_cross_keep_their_vectors() -> None:
    """A level that decays more slowly at first and faster later."""
    t = np.arange(10.0)
    decays = np.stack([np.exp(-0.2 * t - 0.05 * t**2), np.exp(-0.4 * t)])
    psi = amplitudes(2, 2)
    C = np.einsum("an,bn,nt->abt", psi, psi.conj(), decays)
    found = levels_of(C, 1)
    np.testing.assert_allclose(found.values, decays / decays[:, 1:2], rtol=1e-9)
    assert found.values[0, 2] > found.values[1, 2] and found.values[0, 8] < found.values[1, 8]


def test_samples_are_numbered_as_the_mean() -> None:
    """Where samples interchange two close levels in the order of their eigenvalues."""
    psi = amplitudes(2, 2)
    C = correlator(psi, np.array([0.500, 0.501]), 8)
    other = correlator(psi, np.array([0.501, 0.500]), 8)
    found = spectrum((C + other) / 2 + 1e-6 * C, np.stack([C, other]), 1)
    assert found.energy_error[:, 2:5] == pytest.approx(0.5e-3, rel=0.01)


def test_levels_are_those_of_the_largest_sum_of_squared_overlaps() -> None:
    """C(0) = 1: overlaps are the elements of the reference, whose plain sums prefer the other order."""
    C, reference = correlator(np.eye(2), ENERGIES[:2], 4), np.array([[0.9, 0.6], [0.55, 0.0]])
    found = levels_of(C, 0, reference)
    np.testing.assert_allclose(found.values, np.exp(-np.outer(ENERGIES[:2], np.arange(4))), rtol=1e-12)


def test_errors_are_honest() -> None:
    """Deviations over jackknife errors, of many small ensembles, have a mean square of 1."""
    rng, ensembles, configs = np.random.default_rng(77), 400, 40
    energies, times = ENERGIES[[0, 2]], 8
    C = correlator(amplitudes(2, 2), energies, times)
    size = np.sqrt(np.abs(np.einsum("aat,bbt->abt", C, C)))
    pulls = []
    for _ in range(ensembles):
        noise = rng.normal(size=(configs, *C.shape)) + 1j * rng.normal(size=(configs, *C.shape))
        data = C + 0.004 * size * (noise + 0.5 * np.roll(noise, 1, axis=-1))
        found = spectrum(data.mean(axis=0), jackknife_samples(data), 1)
        pulls.append((found.energy - energies[:, None]) / found.energy_error)
    chi2 = np.square(np.array(pulls)[:, :, 2:5]).mean(axis=0)
    assert (chi2 > 0.75).all() and (chi2 < 1.35).all()


def test_what_is_refused() -> None:
    C = correlator(amplitudes(3, 2), ENERGIES[:2], 8)
    refuses(r"at t0 = 2 is not positive definite: .* smaller t0, operators that", levels_of, C, 2)
    good = correlator(amplitudes(2, 2), ENERGIES[:2], 8)
    with pytest.raises(
        InputError, match=r"at t0 = 1 of jackknife sample 1 is .* eigenvalue is -1.*, operators"
    ):
        spectrum(good, np.stack([good, -good]), 1)
    silent = good.copy()
    silent[1, :] = silent[:, 1] = 0
    refuses(r"its smallest eigenvalue is 0, operators", levels_of, silent, 1)
    lost = np.stack([good, good])
    lost[1, 0, 1, 5] = np.nan
    with pytest.raises(
        InputError, match=r"of jackknife sample 1 has .nan\+0j. at t = 5 for operators 0 and 1: leave out"
    ):
        spectrum(good, lost, 1)
    for t0 in (-1, 7):
        refuses(f"t0 = {t0} of the eigenvalue problem is none of 0 to 6", levels_of, good, t0)
