"""Block Lanczos on eigenvalues with more copies than a block has columns: none may be missing."""

import numpy as np
import pytest
from dense_operator import DenseOperator, hermitian
from test_block_lanczos import Checkpoint

from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.eigen.eigenpairs import EigenStatus

pytestmark = pytest.mark.usefixtures("reference_kernels")


def degenerate(seed, copies, gap, dimension=300):
    """So many eigenvalues 0.1, the others uniform from `gap` above to 10."""
    others = np.random.default_rng(seed).uniform(0.1 + gap, 10, dimension - copies)
    return np.sort(np.concatenate([[0.1] * copies, others]))


def check(spectrum, seed, vectors, block):
    A = DenseOperator(hermitian(seed, spectrum))
    pairs = BlockLanczos(vectors, block, max_restarts=60).solve(A)
    np.testing.assert_allclose(pairs.values, spectrum[:vectors], atol=1e-11)
    vectors_ = pairs.vectors.reshape(len(spectrum), -1)
    assert abs(vectors_.conj().T @ vectors_ - np.eye(vectors)).max() < 1e-9
    true = np.linalg.norm(A.matrix @ vectors_ - vectors_ * pairs.values, axis=0)
    assert true.max() <= 1e-10 * spectrum[-1]
    assert pairs.status is EigenStatus.CONVERGED


@pytest.mark.parametrize(
    ("seed", "copies", "gap", "vectors", "block"),
    [
        (408473, 8, 0.05, 10, 4),  # two copies among the vectors that a restart keeps
        (7, 9, 0.4, 10, 3),
        pytest.param(*(392404, 19, 0.2, 17, 7), marks=pytest.mark.slow),
        pytest.param(*(373906, 21, 0.5, 18, 2), marks=pytest.mark.slow),
        pytest.param(*(806215, 13, 0.05, 12, 3), marks=pytest.mark.slow),
    ],
)
def test_more_copies_than_columns(seed, copies, gap, vectors, block):
    check(degenerate(seed, copies, gap), seed, vectors, block)


@pytest.mark.parametrize("saves", [4, 9])
def test_a_run_killed_while_copies_are_missing_goes_on_with_the_same_bits(saves):
    A = DenseOperator(hermitian(7, degenerate(7, 9, 0.4)))
    method, checkpoint = BlockLanczos(10, 3), Checkpoint(saves)
    undisturbed = method.solve(A)
    assert len(undisturbed.history) > undisturbed.restarts > saves
    with pytest.raises(KeyboardInterrupt):
        method.solve(A, checkpoint=checkpoint)
    checkpoint.saves = None
    resumed = method.solve(A, checkpoint=checkpoint)
    assert np.array_equal(resumed.vectors, undisturbed.vectors)
    assert resumed.history == undisturbed.history


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_any_degeneracy_in_any_block(seed):
    rng = np.random.default_rng([6120, seed])
    block = int(rng.integers(1, 9))
    copies = int(rng.integers(block, 3 * block + 4))
    vectors = int(rng.integers(max(2, copies - 4), copies + 12))
    check(degenerate(seed, copies, float(rng.choice([0.02, 0.05, 0.2, 0.5]))), seed, vectors, block)


@pytest.mark.parametrize(
    ("dimension", "vectors", "block"),
    [(33, 33, 32), (60, 60, 7), (60, 58, 5), (60, 1, 32), (3, 1, 32), (3, 3, 1)],
)
def test_a_basis_of_the_whole_space_in_any_block(dimension, vectors, block):
    check(np.sort(np.random.default_rng(dimension).uniform(-3, 3, dimension)), dimension, vectors, block)


@pytest.mark.parametrize("subspace", [42, 53, 56, 58, 60, 99])
def test_a_basis_of_nearly_the_whole_space(subspace):
    spectrum = np.sort(np.random.default_rng(2).uniform(-3, 3, 60))
    A = DenseOperator(hermitian(3, spectrum))
    pairs = BlockLanczos(28, 7, subspace=subspace, max_restarts=60).solve(A)
    np.testing.assert_allclose(pairs.values, spectrum[:28], atol=1e-12)
    assert pairs.matvecs == A.applications
