"""Block Lanczos against dense matrices, closed forms of the free field and MILC's eigenvalues."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dense_operator import DenseOperator, hermitian
from scipy.fft import fft, ifft

from stages.base.errors import InputError
from stages.lqcd.dirac.staggered import NormalOperator, SquaredDslash, StaggeredDslash
from stages.lqcd.eigen.block_lanczos import BlockLanczos, _Run
from stages.lqcd.eigen.chebyshev import ChebyshevFilter, RepeatedFilter
from stages.lqcd.eigen.eigenpairs import EigenpairsNotConverged, EigenStatus
from stages.lqcd.eigen.subspace import Subspace
from stages.lqcd.eigen.window import SpectrumEstimate, WindowChoice
from stages.lqcd.gauge.hisq import hisq_links, naive_links
from stages.lqcd.kernels import basis, block_blas
from stages.lqcd.kernels.dispatch import array_module, as_numpy, to_device_like
from stages.lqcd.lattice.formats import read_gauge
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.solvers.orthonormal import orthonormalise
from support.matrices import COLUMNS, matrix_of
from support.refusals import refuses


class Checkpoint:
    """Keeps what was saved last, and ends the run after so many saves."""

    def __init__(self, saves: int | None = None) -> None:
        self.arrays: dict[str, Any] | None = None
        self.saves = saves

    def load(self):
        return self.arrays

    def save(self, state):
        self.arrays = {name: np.array(array) for name, array in state().items()}
        if self.saves is not None:
            self.saves -= 1
            if self.saves == 0:
                raise KeyboardInterrupt


def milc_operator(reference_data, entry, backend):
    configuration = read_gauge(reference_data / entry["files"][0])
    links = hisq_links(
        backend.xp.asarray(configuration.links), configuration.lattice, boundary="antiperiodic",
        naik_epsilon=entry["values"]["eps"],
    )  # fmt: skip
    return SquaredDslash(StaggeredDslash(links))


def rough_operator(backend):
    """That of HISQ quarks on 4^4, on links that are random and near one."""
    rng, lattice = np.random.default_rng(87), Lattice((4, 4, 4, 4))
    shape = (4, 2, lattice.half_volume, 3, 3)
    thin, _ = np.linalg.qr(np.eye(3) + 0.3 * (rng.normal(size=shape) + 1j * rng.normal(size=shape)))
    thin[..., 0] /= np.linalg.det(thin)[..., None]
    links = hisq_links(backend.xp.asarray(thin), lattice, boundary="antiperiodic", naik_epsilon=0.0)
    return SquaredDslash(StaggeredDslash(links))


def dense_eigenvalues(A, xp):
    return np.linalg.eigvalsh(matrix_of(lambda x: as_numpy(A.apply(xp.asarray(x))), A.shape))


def free_operator(extent, backend):
    lattice = Lattice((extent,) * 4)
    unit = np.broadcast_to(np.eye(3, dtype=complex), (4, 2, lattice.half_volume, 3, 3))
    links = naive_links(backend.xp.asarray(unit.copy()), lattice, boundary="antiperiodic")
    return SquaredDslash(StaggeredDslash(links))


def free_spectrum(extent):
    """4 sum_mu sin^2 p_mu over all momenta, each with three colours, half of them on even sites."""
    space = 4 * np.sin(2 * np.pi * np.arange(extent) / extent) ** 2
    time = 4 * np.sin(2 * np.pi * (np.arange(extent) + 0.5) / extent) ** 2
    sums = space[:, None, None, None] + space[:, None, None] + space[:, None] + time
    return np.sort(np.repeat(sums.ravel(), 3))[::2]


def check(pairs, A):
    """Orthonormal vectors with the recorded residuals."""
    vectors = pairs.vectors
    gram = as_numpy(basis.project(vectors, vectors))
    assert abs(gram - np.eye(len(gram))).max() < 1e-9
    residuals = []
    for first in range(0, len(gram), COLUMNS):
        block = array_module(vectors).ascontiguousarray(vectors[..., first : first + COLUMNS])
        image = A.apply(block) - block * to_device_like(pairs.values[first : first + COLUMNS], block)
        residuals.extend(np.sqrt(as_numpy(block_blas.norms2(image))))
    np.testing.assert_allclose(residuals, pairs.residuals, atol=1e-12)
    assert pairs.status is EigenStatus.CONVERGED


@pytest.mark.parametrize("block", [1, 8, *(pytest.param(b, marks=pytest.mark.slow) for b in (4, 16))])
@pytest.mark.parametrize("name", ["l4444", pytest.param("l8888", marks=pytest.mark.slow)])
def test_eigenvalues_are_milcs(reference_data, expected, backend, block, name):
    entry = expected[f"hisq:eigs_{name}"]
    A = milc_operator(reference_data, entry, backend)
    reference = np.array(entry["values"]["eig"])
    pairs = BlockLanczos(len(reference), block).solve(A)
    np.testing.assert_allclose(pairs.values, reference, rtol=entry["rtol"])
    check(pairs, A)


def test_full_spectrum_and_part_of_it_agree_with_a_dense_diagonalisation(backend):
    A = rough_operator(backend)
    size, dense = int(np.prod(A.shape)), dense_eigenvalues(A, backend.xp)
    full = BlockLanczos(size, 8).solve(A)
    np.testing.assert_allclose(full.values, dense, rtol=1e-12)
    check(full, A)
    blocks = [BlockLanczos(20, b).solve(A).values for b in (1, 3, 8)]
    for values in blocks:
        np.testing.assert_allclose(values, dense[:20], rtol=1e-10)


@pytest.mark.parametrize(
    ("extent", "vectors", "block"),
    [
        pytest.param(4, 60, 1, marks=pytest.mark.slow),
        pytest.param(4, 100, 5, marks=pytest.mark.slow),
        (4, 12, 3),
        *(
            pytest.param(4, k, b, marks=pytest.mark.slow)
            for k, b in ((10, 5), (150, 7), (150, 8), (192, 16), (384, 32))
        ),
        *(pytest.param(8, k, b, marks=pytest.mark.slow) for k, b in ((60, 1), (130, 4), (130, 16), (60, 32))),
    ],
)
def test_degenerate_eigenvalues_have_their_full_multiplicity(backend, extent, vectors, block):
    A = free_operator(extent, backend)
    pairs = BlockLanczos(vectors, block).solve(A)
    np.testing.assert_allclose(pairs.values, free_spectrum(extent)[:vectors], atol=1e-11)
    check(pairs, A)


@pytest.mark.parametrize("subspace", [12, 40])
def test_a_single_vector_finds_every_copy_in_any_subspace(subspace):
    """The confirmation needs several cycles of its own in the small one."""
    spectrum = np.concatenate([[0.5] * 4, [0.6] * 3, np.linspace(0.9, 4, 293)])
    A = DenseOperator(hermitian(79, spectrum))
    pairs = BlockLanczos(8, 1, subspace=subspace, degree=12).solve(A)
    np.testing.assert_allclose(pairs.values, np.sort(spectrum)[:8], atol=1e-11)


@pytest.mark.parametrize("block", [1, 3])
def test_clusters_and_negative_eigenvalues_of_any_hermitian_operator(block):
    rng = np.random.default_rng(77)
    wanted = np.concatenate([[-2.0] * 7, -1.9 + 1e-7 * np.arange(6), [-1.7, -1.7, -1.5]])
    spectrum = np.concatenate([wanted, rng.uniform(-1.2, 5, 600 - wanted.size)])
    A = DenseOperator(hermitian(78, spectrum))
    pairs = BlockLanczos(16, block).solve(A)
    np.testing.assert_allclose(pairs.values, wanted, atol=1e-11)
    assert pairs.residuals.max() <= 1e-10 * 5
    assert pairs.matvecs == A.applications


def test_the_mass_only_shifts(backend):
    B = rough_operator(backend)
    A = NormalOperator(B.dslash, 0.3)
    massless, massive = (BlockLanczos(8, 8).solve(op) for op in (B, A))
    np.testing.assert_allclose(massive.values - A.shift, massless.values, rtol=1e-11)


def test_single_precision(backend):
    B = rough_operator(backend)
    pairs = BlockLanczos(12, 3, tolerance=1e-5).solve(B.astype("c8"))
    assert pairs.vectors.dtype == np.complex64
    np.testing.assert_allclose(pairs.values, dense_eigenvalues(B, backend.xp)[:12], rtol=1e-5)
    with pytest.raises(InputError, match=r"single precision stay above about 6e-06 .* or double"):
        BlockLanczos(12, 3).solve(B.astype("c8"))


@pytest.mark.slow
def test_a_window_below_wanted_eigenvalues_is_corrected():
    spectrum = np.linspace(0.1, 10, 600)
    A = DenseOperator(hermitian(81, spectrum))
    pairs = BlockLanczos(12, 4, window=(0.15, 10.5), degree=20).solve(A)
    np.testing.assert_allclose(pairs.values, spectrum[:12], rtol=1e-10)
    assert pairs.window[0] > spectrum[11] and pairs.extras["moved_windows"] > 0


@pytest.mark.parametrize("index", [3, 5])
@pytest.mark.parametrize("killed", [False, True])
def test_a_wanted_value_that_is_lost_when_the_window_is_raised_is_found(index, killed, monkeypatch):
    """Where the next block has no part of its vector no iteration brings one: a fresh block does.

    Also in a run that goes on from a checkpoint.
    """
    spectrum, combine, lost = np.sort(np.random.default_rng(71).uniform(0, 1, 150)), Subspace.combine, []

    def combined(space, columns):
        combine(space, columns)
        if not lost:
            space.X.reshape(150, -1)[index] = 0
            orthonormalise(space.X)
            lost.append(index)

    monkeypatch.setattr(Subspace, "combine", combined)
    A, edge = DenseOperator(np.diag(spectrum)), spectrum[2:4].mean()
    method, checkpoint = BlockLanczos(6, 4, window=(edge, 1.05)), Checkpoint()
    while killed and not lost:
        checkpoint.saves = 1
        with pytest.raises(KeyboardInterrupt):
            method.solve(A, checkpoint=checkpoint)
    checkpoint.saves = None
    pairs = method.solve(A, checkpoint=checkpoint)
    assert lost and pairs.extras["moved_windows"] > 0
    np.testing.assert_allclose(pairs.values, spectrum[:6], rtol=0, atol=1e-11)


def test_a_block_of_pairs_competes_again_where_one_was_missing():
    """Copies of the missing value may be as many as a block has columns."""
    space = SimpleNamespace(block=4, used=8, permute=lambda order: None, combine=lambda columns: None)
    run = SimpleNamespace(space=space, wanted=8, filter=ChebyshevFilter(1, 2, 6))
    for missing, locked in ((0.5, 3), (0.15, 1), (0.95, 4)):
        run.values, run.residuals = np.arange(1, 9) / 10, np.zeros(8)
        run.values[3:] += 0.3
        _Run._unlock(run, run.filter.values(missing))
        assert space.locked == locked and np.isfinite(run.values).sum() == locked


class Waves(DenseOperator):
    """Chosen eigenvalues, on plane waves with random phases at each site: products are fast, and round."""

    def __init__(self, eigenvalues, dtype):
        rng, size = np.random.default_rng(89), len(eigenvalues)
        self.dtype, self.shape = np.dtype(dtype), (size // 3, 3)
        self.phases = np.exp(2j * np.pi * rng.random((size, 1))).astype(dtype)
        self.eigenvalues = rng.permutation(eigenvalues)[:, None].astype(self.phases.real.dtype)

    def apply(self, x, out):
        waves = self.eigenvalues * fft(self.phases * x.reshape(len(self.phases), -1), axis=0)
        out[...] = (self.phases.conj() * ifft(waves, axis=0)).reshape(x.shape)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vectors", "block", "spacing", "dtype", "tolerance"),
    [
        (4, 4, 1e-3, "c8", 1e-4),
        (16, 8, 4e-4, "c8", 5e-5),
        (8, 8, 1e-3, "c8", 1e-2),
        (1, 1, 4e-4, "c8", 1e-4),  # a mixture of the lowest
        (8, 8, 1e-3, "c16", 1e-13),
    ],
)
def test_searches_far_below_the_largest_eigenvalue_converge(vectors, block, spacing, dtype, tolerance):
    """Square roots of eigenvalues are evenly spaced and small, as on a large lattice."""
    low = (spacing * (np.arange(400) + 0.5)) ** 2
    A = Waves(np.concatenate([low, 20 * np.sqrt(np.linspace(0.01, 1, 5600))]), dtype)
    pairs = BlockLanczos(vectors, block, tolerance, max_restarts=30).solve(A)
    np.testing.assert_allclose(pairs.values, low[:vectors], rtol=0, atol=20 * tolerance)


@pytest.mark.parametrize(
    ("tolerance", "dtype", "low", "damping"),
    [(1e-4, "c8", 0.01, 0), (1e-4, "c8", 1e-3, 14), (1e-10, "c16", 1e-5, 0), (1e-13, "c16", 1e-5, 24)],
)
def test_filters_whose_rounding_would_hold_up_residuals_are_damped(tolerance, dtype, low, damping):
    choice = WindowChoice((low, 20), None, 24, 8, accuracy=tolerance / np.finfo(dtype).eps)
    nodes = np.array([0, 19.0])
    spectrum = SpectrumEstimate(0.0, 19.0, 20.0, nodes, nodes, 1.0, 2, nodes)
    filter = choice.first(spectrum)
    assert filter.damping == damping


@pytest.mark.parametrize("damping", [0, 3])
def test_eigenvalues_of_values_of_the_filter_are_its_inverse(damping):
    filter, low = ChebyshevFilter(0.01, 3, 40, damping), np.array([0.001, 0.005, 0.009])
    np.testing.assert_allclose(filter.eigenvalues(filter.values(low)), low, atol=1e-3 if damping else 1e-12)
    assert abs(filter.values(np.linspace(0.01, 3, 99))).max() < 1 + 1e-9


@pytest.mark.parametrize("degree", [1, 4, 7])
def test_values_of_the_filter_are_a_chebyshev_polynomial(degree):
    """T_d of what the window (1, 3) maps to (1, -1), on both sides of it, too."""
    x = np.linspace(-1, 5, 25)
    expected = np.polynomial.Chebyshev.basis(degree)(2 - x)
    np.testing.assert_allclose(ChebyshevFilter(1, 3, degree).values(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("damping", "most"), [(0, 2e-4), pytest.param(18, 2e-5, marks=pytest.mark.slow)])
def test_a_filter_of_high_degree_keeps_its_digits_in_single_precision(backend, damping, most):
    """|B e| of the error e of p(B) x, which is what residuals of eigenvectors cannot fall below."""
    B = rough_operator(backend)
    rng = np.random.default_rng(88)
    x = backend.xp.asarray(rng.normal(size=(*B.shape, 8)) + 1j * rng.normal(size=(*B.shape, 8)))
    filter = ChebyshevFilter(1e-3, 20.5, 222, damping)
    single, double = (
        RepeatedFilter(A).apply(filter, x.astype(A.dtype), x.astype(A.dtype))[0]
        for A in (SquaredDslash(B.dslash.astype(np.complex64)), B)
    )
    error, size = (float(abs(B.apply(field)).max()) for field in (single - double, x))
    assert error < most * size


EDGES = (0.012, 0.014, 0.016, 0.018, 0.020, 0.024)


@pytest.mark.parametrize(
    "wanted", [pytest.param(8, marks=pytest.mark.slow), 10, pytest.param(12, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "edge", [each if each == 0.020 else pytest.param(each, marks=pytest.mark.slow) for each in EDGES]
)
@pytest.mark.parametrize("seed", [4, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (5, 6))])
def test_windows_that_begin_among_the_wanted_values(edge, wanted, seed):
    """600 values in (0, 1), of which the wanted ones end at about 0.0133 to 0.02."""
    spectrum = np.sort(np.random.default_rng(seed).uniform(0, 1, 600))
    pairs = BlockLanczos(wanted, 8, window=(edge, 1.01)).solve(
        DenseOperator(np.diag(spectrum)), on_failure="return"
    )
    if pairs.status is EigenStatus.CONVERGED:
        np.testing.assert_allclose(pairs.values, spectrum[:wanted], rtol=0, atol=1e-11)


def test_a_window_that_amplifies_the_upper_end_is_refused_with_the_numbers():
    A = DenseOperator(hermitian(82, np.linspace(0.1, 10, 300)))
    refuses(r"\(1, 8\).*at least 9\.\d+.*upper end of 10", BlockLanczos(4, 2, window=(1, 8)).solve, A)


def test_a_killed_run_goes_on_with_the_same_bits():
    A = DenseOperator(hermitian(83, np.linspace(0.01, 3, 432) ** 2))
    method = BlockLanczos(10, 3, degree=6)
    undisturbed = method.solve(A)
    checkpoint = Checkpoint(saves=2)
    with pytest.raises(KeyboardInterrupt):
        method.solve(A, checkpoint=checkpoint)
    checkpoint.saves = None
    checkpoint.arrays["filter"] = checkpoint.arrays["filter"][:3]  # as it was before there was any damping
    resumed = method.solve(A, checkpoint=checkpoint)
    assert undisturbed.restarts == resumed.restarts > 3
    assert np.array_equal(resumed.values, undisturbed.values)
    assert np.array_equal(resumed.vectors, undisturbed.vectors)
    assert resumed.matvecs == undisturbed.matvecs and resumed.history == undisturbed.history
    refuses("another run", replace(method, vectors=11).solve, A, checkpoint=checkpoint)


def test_progress_and_the_limit_of_restarts():
    A = DenseOperator(hermitian(84, np.linspace(0.01, 3, 432) ** 2))
    seen = []
    with pytest.raises(EigenpairsNotConverged, match=r"after 2 restarts.*raise max_restarts") as failure:
        BlockLanczos(10, 3, degree=4, max_restarts=2).solve(A, progress=lambda *report: seen.append(report))
    assert [report[0] for report in seen] == [1, 2] and seen[-1][2] == 10
    assert failure.value.eigenpairs.history == [(r, c, x) for r, c, _, x in seen]
    pairs = BlockLanczos(10, 3, degree=4, max_restarts=2).solve(A, on_failure="return")
    assert pairs.status is EigenStatus.RESTART_LIMIT and len(pairs.values) == 10


def test_bad_input_is_answered_with_the_numbers():
    A = DenseOperator(hermitian(85, np.linspace(1, 2, 60)))
    for arguments, message in (
        ({"vectors": 0}, "at least 1"),
        ({"vectors": 4, "block": 33}, "1 to 32"),
        ({"vectors": 4, "tolerance": 0}, "between 0 and 1"),
        ({"vectors": 4, "window": (3, 1)}, "low < high"),
        ({"vectors": 4, "degree": 0}, "at least 1"),
    ):
        refuses(message, BlockLanczos, **arguments)
    refuses(r"61 eigenvectors.*dimension 60.*at most 60", BlockLanczos(61).solve, A)
    refuses(r"subspace of 6 .*at least 12", BlockLanczos(4, 4, subspace=6).solve, A)
    with pytest.raises(InputError, match="NaN or infinite: check the gauge links"):
        BlockLanczos(4).solve(DenseOperator(np.full((60, 60), np.nan)))
    A.hermitian = False
    refuses("Hermitian", BlockLanczos(4).solve, A)


def test_too_little_memory_names_the_number_of_vectors_that_fit(monkeypatch):
    A = DenseOperator(hermitian(86, np.linspace(1, 2, 3)))
    A.shape = (10**6, 3)
    method = BlockLanczos(1000, 8)
    free = BlockLanczos(100, 8).memory(A) + 1
    monkeypatch.setattr("stages.lqcd.eigen.block_lanczos.available_bytes", lambda xp: free)
    refuses(r"1000 eigenvectors take .* GiB are free: at most 100 vectors fit", method.solve, A)
