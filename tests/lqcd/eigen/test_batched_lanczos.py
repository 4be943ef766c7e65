"""Lanczos on many systems at once: against dense diagonalisation, closed forms and single runs."""

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import Storage
from stages.lqcd.eigen.batched_lanczos import BatchedLanczos
from stages.lqcd.eigen.batched_subspace import BatchedSubspace
from stages.lqcd.eigen.eigenpairs import EigenpairsNotConverged, EigenStatus
from support.refusals import refuses

pytestmark = pytest.mark.usefixtures("reference_kernels")


@dataclass(frozen=True)
class Blocks:
    """A Hermitian operator of dense diagonal blocks ``[S, n, n]``; fields ``[S n, N]``."""

    matrices: np.ndarray
    hermitian: bool = True
    xp = np

    @property
    def shape(self):
        return (self.matrices.shape[0] * self.matrices.shape[1],)

    @property
    def dtype(self):
        return self.matrices.dtype

    def apply(self, x, out=None):
        result = (self.matrices @ x.reshape(*self.matrices.shape[:2], -1)).reshape(x.shape)
        if out is None:
            return result
        out[...] = result
        return out


class Constant(Blocks):
    """36, whose powers are exact but for the last digits of each."""

    def storage(self, name):
        return Storage(self, lambda x, out, dots, a, b: partial(np.multiply, a + 36 * b, x, out))


def blocks(spectra, dtype=complex, seed=3):
    """Operators with these eigenvalues, each in a random basis."""
    rng = np.random.default_rng(seed)
    n = len(spectra[0])
    made = []
    for values in spectra:
        Q = np.linalg.qr(rng.normal(size=(n, n)) + 1j * rng.normal(size=(n, n)))[0]
        made.append((Q * values) @ Q.conj().T)
    return Blocks(np.array(made, dtype))


def lanczos(vectors, block, **options):
    return BatchedLanczos(vectors, block, **options)


def check(A, found, tolerance, limit):
    n = A.matrices.shape[1]
    vectors = found.vectors.astype(complex)
    k = vectors.shape[2]
    assert found.status is EigenStatus.CONVERGED and vectors.shape == (len(A.matrices), n, k)
    gram = vectors.conj().swapaxes(1, 2) @ vectors
    assert np.abs(gram - np.eye(k)).max() < limit
    residuals = np.linalg.norm(A.matrices @ vectors - vectors * found.values[:, None], axis=1)
    np.testing.assert_allclose(found.residuals, residuals, atol=limit * 10)
    expected = np.linalg.eigvalsh(A.matrices.astype(complex))
    assert residuals.max() <= tolerance * np.abs(expected).max()
    np.testing.assert_allclose(found.values, expected[:, :k], atol=limit * 100)


@pytest.mark.parametrize("block", [1, 4, 16])
def test_systems_of_different_spectra(block):
    """Uniform, clustered at the lower end, and with a gap; block sizes agree to 1e-10."""
    spectra = [np.linspace(0.1, 10, 180), np.linspace(0.05, 3, 180) ** 2, np.r_[1.0:4:12j, 6:10:168j]]
    A = blocks(spectra)
    found = lanczos(12, block, tolerance=1e-11).solve(A, 3)
    check(A, found, 1e-11, 1e-12)
    for values, spectrum in zip(found.values, spectra, strict=True):
        np.testing.assert_allclose(values, np.sort(spectrum)[:12], rtol=1e-10)


@pytest.mark.parametrize("block", [1, 4])
def test_multiplicities_above_the_block(block):
    """Six and ten copies, in one of two systems: a fresh block finds those that a Krylov space cannot."""
    degenerate = np.r_[np.full(6, 1.0), np.full(10, 1.5), np.linspace(2, 9, 164)]
    A = blocks([degenerate, np.linspace(0.5, 8, 180)])
    found = lanczos(14, block, tolerance=1e-10).solve(A, 2)
    check(A, found, 1e-10, 1e-11)


def test_a_spectrum_of_few_points():
    """The Krylov space ends after five steps; random columns go on."""
    A = blocks([np.repeat([1.0, 2, 3, 4, 5], 36), np.repeat([1.0, 1.5, 3, 4, 5], 36)])
    check(A, lanczos(20, 4, tolerance=1e-10).solve(A, 2), 1e-10, 1e-10)


def test_nothing_but_rounding_to_go_on_with():
    """All that an application gives lies in the basis, which takes up more and more of the space."""
    A = Constant(np.broadcast_to(36.0 * np.eye(96, dtype=complex), (2, 96, 96)))
    check(A, lanczos(3, 8, tolerance=1e-10).solve(A, 2), 1e-10, 1e-11)


@pytest.mark.parametrize(
    "spectra",
    [
        pytest.param([np.zeros(180), np.linspace(0.1, 36, 180)], id="a system of zeros"),
        pytest.param([np.linspace(0.01, 1, 180), np.linspace(20, 36, 180)], id="one below the other"),
    ],
)
def test_spectra_that_have_little_in_common(spectra):
    A = blocks(spectra)
    check(A, lanczos(6, 4, tolerance=1e-10).solve(A, 2), 1e-10, 1e-11)


def test_spectra_that_no_filter_serves():
    """Pairs with small residuals that are not the lowest are not given back."""
    A = blocks([np.linspace(0.01, 1, 180), np.linspace(35, 36, 180)])
    with pytest.raises(EigenpairsNotConverged, match=r"10 of 20 .* solve such systems"):
        lanczos(10, 4, tolerance=1e-10).solve(A, 2)


@pytest.mark.parametrize("points", [180, 5])
def test_projected_operators(points):
    """H = V^H F V with V orthonormal, after a restart, replaced columns and a fresh block, too.

    Before that block all of F V lies in V and X.
    """
    spectrum = np.repeat(np.linspace(1, 10, points), 180 // points)
    A = blocks([spectrum, spectrum / 2])
    space = BatchedSubspace(np, 2, 180, A.dtype, 40, 4, seed=5)

    def apply(x, spare):
        return A.apply(x.reshape(-1, 4)).reshape(x.shape), spare

    def fill(used, left=1e-12):
        while space.used < used:
            space.expand(apply)
        V, H = space.V[..., :used], space.H[:, :used, :used]
        every = np.concatenate([V, space.X], axis=2)
        assert np.abs(every.conj().swapaxes(1, 2) @ every - np.eye(used + 4)).max() < 1e-14
        images = A.matrices @ V
        assert np.abs(V.conj().swapaxes(1, 2) @ images - H).max() < 2e-13
        assert np.abs(images - every @ (every.conj().swapaxes(1, 2) @ images)).max() < left

    space.start(apply)
    fill(36)
    space.restart(*space.ritz(), 20)
    fill(40)
    space.restart(*space.ritz(), 12)
    space.start(apply, 12)
    fill(32, left=np.inf)


@pytest.mark.parametrize("index", [0, 9])
def test_a_wanted_value_that_is_lost_when_the_window_is_raised_is_found(index, monkeypatch):
    """Where the next block has no part of its vector no iteration brings one: a fresh block does."""
    spectra = np.array([np.linspace(0.1, 10, 300), np.linspace(1.5, 10, 300)])
    A, mix, lost = Blocks(np.array([np.diag(each) for each in spectra], complex)), BatchedSubspace.mix, []

    def mixed(space):
        mix(space)
        if not lost:
            space.X[1, index] = 0
            space._complete()
            lost.append(index)

    monkeypatch.setattr(BatchedSubspace, "mix", mixed)
    found = lanczos(10, 4, tolerance=1e-10).solve(A, 2)
    assert lost
    np.testing.assert_allclose(np.sort(found.values), spectra[:, :10], rtol=0, atol=1e-8)


def test_a_block_filtered_beforehand_saves_columns(monkeypatch):
    """At one step more, at most."""
    A, method, used = blocks([np.linspace(0.1, 10, 180)] * 2), lanczos(10, 4, tolerance=1e-8), []
    restart = BatchedSubspace.restart

    def noted(space, *arguments):
        used.append(space.used)
        restart(space, *arguments)

    monkeypatch.setattr(BatchedSubspace, "restart", noted)
    found = method.solve(A, 2)
    monkeypatch.setattr("stages.lqcd.eigen.batched_subspace.FILTERED", 0)
    wanted = method.solve(A, 2)
    np.testing.assert_allclose(found.values, wanted.values, rtol=0, atol=1e-10)
    assert used[0] < used[1] and found.matvecs <= wanted.matvecs + 4 * found.degree


def test_single_precision():
    A = blocks([np.linspace(0.1, 10, 180), np.linspace(0.2, 10, 180)], np.complex64)
    check(A, lanczos(10, 4, tolerance=1e-5).solve(A, 2), 1.1e-5, 3e-6)


def test_what_people_are_told():
    A, told = blocks([np.linspace(0.1, 10, 180)] * 2), []
    found = lanczos(10, 4, tolerance=1e-10).solve(A, 2, progress=lambda *done: told.append(done))
    assert [restarts for restarts, *_ in told] == list(range(1, found.restarts + 1))
    assert told[-1][1:3] == (20, 20) and told[-1][3] <= 1e-9
    with pytest.raises(EigenpairsNotConverged, match=r"of 20 eigenpairs missed .* 1 restarts.*raise max_res"):
        lanczos(10, 1, tolerance=1e-12, max_restarts=1).solve(A, 2)


def test_refusals():
    A = blocks([np.linspace(0.1, 10, 64)] * 2)
    for options, message in (
        ({"vectors": 0}, "at least 1, got 0"),
        ({"vectors": 2, "block": 33}, "must be 1 to 32, got 33"),
        ({"vectors": 2, "tolerance": 2.0}, "between 0 and 1, got 2"),
        ({"vectors": 2, "max_restarts": 0}, "max_restarts must be a whole number of at least 1"),
    ):
        refuses(message, BatchedLanczos, **options)
    refuses("leave no room for Lanczos", lanczos(20, 4).solve, A, 2)
    refuses("on 3 systems needs an operator of as many equal blocks", lanczos(4, 1).solve, A, 3)
    refuses("stay above about 1e-14", lanczos(4, 1, tolerance=1e-15).solve, A, 2)
    with pytest.raises(InputError, match="squares of what Blocks gives are no numbers in complex128"):
        lanczos(4, 1).solve(Blocks(1e-170 * A.matrices), 2)
    refuses("gives zero", lanczos(4, 1).solve, Blocks(np.zeros((2, 64, 64), complex)), 2)


@dataclass(frozen=True)
class Noisy(Blocks):
    """Blocks whose applications err by so much."""

    noise: float = 0.0
    rng = np.random.default_rng(7)

    def apply(self, x, out=None):
        result = super().apply(x, out)
        result += self.noise * self.rng.normal(size=result.shape)
        return result


@pytest.mark.parametrize(
    ("noise", "status", "message"),
    [
        (1e-9, EigenStatus.STALLED, r"no longer fall above rounding.*: ask for \d+ vectors instead of 4"),
        (1e-12, EigenStatus.PRECISION, "rounding in the precision of the vectors holds them up"),
    ],
)
def test_residuals_that_no_longer_fall_end_the_run(noise, status, message):
    A = blocks([np.linspace(0.1, 10, 64)] * 2)
    with pytest.raises(EigenpairsNotConverged, match=message) as e:
        lanczos(4, 2, tolerance=2e-14).solve(Noisy(A.matrices, noise=noise), 2)
    assert e.value.eigenpairs.status is status and e.value.eigenpairs.restarts < 90


@pytest.mark.parametrize("seed", range(3))
def test_a_cycle_ends_when_all_pairs_are_done(seed, monkeypatch):
    """Before the basis is full, by estimates that hold; a full cycle finds the same."""
    A, method = blocks([np.linspace(0.1, 10, 180)] * 2), lanczos(10, 4, tolerance=1e-4, seed=seed)
    early = method.solve(A, 2)
    monkeypatch.setattr("stages.lqcd.eigen.batched_lanczos.LATE", 2.0)
    full = method.solve(A, 2)
    assert early.restarts == full.restarts == 1 and early.matvecs < full.matvecs
    np.testing.assert_allclose(early.values, full.values, rtol=0, atol=1e-7)
    assert full.residuals.max() < early.residuals.max() <= 1e-4 * 10
