"""What block Lanczos says where it cannot go on, or must not."""

import numpy as np
import pytest
from dense_operator import DenseOperator, hermitian
from test_block_lanczos import Checkpoint

from stages.base.errors import InputError
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.eigen.eigenpairs import EigenpairsNotConverged, EigenStatus
from stages.lqcd.eigen.lanczos import vectors_to_ask_for

UNIFORM = np.sort(np.random.default_rng(0).uniform(0.01, 10, 300))


class Changing(DenseOperator):
    """An operator that becomes another one after so many applications to a block."""

    changes = 10**9

    def apply(self, x, out=None):
        self.changes -= 1
        if self.changes == 0:
            self.matrix = self.matrix + 1e-6
        return super().apply(x, out)


@pytest.mark.parametrize("saves", [1, None])
def test_a_checkpoint_of_another_operator_is_refused(saves):
    method, checkpoint = BlockLanczos(10, 4, degree=8), Checkpoint(saves)
    A = DenseOperator(hermitian(1, UNIFORM))
    if saves is None:
        method.solve(A, checkpoint=checkpoint)
    else:
        with pytest.raises(KeyboardInterrupt):
            method.solve(A, checkpoint=checkpoint)
    checkpoint.saves = None
    for other in (hermitian(2, UNIFORM), A.matrix + 1e-9 * np.eye(300)):
        with pytest.raises(InputError, match=r"another operator.* x\^H A x = .*remove it to start anew"):
            method.solve(DenseOperator(other), checkpoint=checkpoint)
    rounded = DenseOperator(A.matrix * (1 + 2**-51))
    np.testing.assert_allclose(method.solve(rounded, checkpoint=checkpoint).values, UNIFORM[:10], rtol=1e-10)


def test_residuals_are_compared_with_the_limit_at_the_end():
    method = BlockLanczos(10, 4)
    A = Changing(hermitian(1, UNIFORM))
    method.solve(A)
    calls = 10**9 - A.changes
    B = Changing(hermitian(1, UNIFORM))
    B.changes = calls - 1  # among the last ones, which measure the residuals
    with pytest.raises(
        EigenpairsNotConverged, match="miss the tolerance in the residuals computed at the end"
    ):
        method.solve(B)


def test_a_tolerance_below_rounding_ends_the_run_soon():
    pairs = BlockLanczos(30, 8, tolerance=1.2e-14).solve(
        DenseOperator(hermitian(1, np.sort(np.random.default_rng(0).uniform(0.01, 10, 600)))),
        on_failure="return",
    )
    assert pairs.status is EigenStatus.PRECISION and pairs.restarts < 40
    assert pairs.residuals.max() < 1e-11


def test_a_zero_operator_is_refused_and_a_multiple_of_one_is_not():
    with pytest.raises(InputError, match="gives zero: every vector has the eigenvalue 0"):
        BlockLanczos(5, 4).solve(DenseOperator(np.zeros((300, 300))))
    np.testing.assert_allclose(
        BlockLanczos(5, 4).solve(DenseOperator(-3 * np.eye(300))).values, -3, rtol=1e-14
    )


@pytest.mark.parametrize("dimension", [60, 300])
def test_numbers_that_are_none_are_refused(dimension):
    with pytest.raises(InputError, match="NaN or infinite: check the gauge links"):
        BlockLanczos(5, 4, subspace=dimension // 5 * 4).solve(
            DenseOperator(np.full((dimension,) * 2, np.nan))
        )


def test_a_degree_that_overflows_is_refused_with_the_largest_that_is_not():
    A = DenseOperator(hermitian(1, UNIFORM))
    with pytest.raises(
        InputError, match=r"degree 2000 over the window .* by 1e\d+.*at most (\d+), or none"
    ) as refused:
        BlockLanczos(10, 4, degree=2000).solve(A)
    most = int(str(refused.value).split("at most ")[1].split(",")[0])
    pairs = BlockLanczos(10, 4, degree=most).solve(A)
    np.testing.assert_allclose(pairs.values, UNIFORM[:10], rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-160, 1e-170])
def test_numbers_whose_squares_underflow_are_refused(scale):
    with pytest.raises(InputError, match="squares of what DenseOperator gives are no numbers in complex128"):
        BlockLanczos(10, 4).solve(DenseOperator(scale * hermitian(1, UNIFORM)))


def test_residuals_that_rest_far_above_rounding_end_the_run():
    class Noisy(DenseOperator):
        noise = np.random.default_rng(7)

        def apply(self, x, out=None):
            result = super().apply(x, out)
            result += 1e-9 * self.noise.normal(size=result.shape)
            return result

    with pytest.raises(
        EigenpairsNotConverged, match=r"no longer fall above rounding.*: ask for \d+ vectors"
    ) as e:
        BlockLanczos(8, 4, tolerance=1e-11).solve(Noisy(hermitian(1, UNIFORM)))
    assert e.value.eigenpairs.status is EigenStatus.STALLED and e.value.eigenpairs.restarts < 120


@pytest.mark.parametrize(
    ("eigenvalues", "wanted", "advised"),
    [
        (np.r_[0.5 + 1e-8 * np.sqrt(np.arange(24)), 1.0:4:16j], 8, 24),
        (np.r_[np.full(24, 0.5), 1.0:4:16j], 8, 24),
        (0.5 + 1e-8 * np.sqrt(np.arange(24)), 8, 16),  # the cluster goes on behind what is known
        (np.r_[0.5 + 1e-8 * np.sqrt(np.arange(8)), 1.0:4:16j], 8, 16),
        (np.linspace(1, 4, 8), 8, 16),
    ],
)
def test_number_of_vectors_that_does_not_cut_a_cluster(eigenvalues, wanted, advised):
    assert vectors_to_ask_for(eigenvalues, wanted) == advised


@pytest.mark.slow
def test_vectors_that_cut_a_cluster_end_the_run():
    """Three of twelve eigenvalues within 1e-5, in a basis that does not hold them all."""
    rng = np.random.default_rng(3)
    spectrum = np.sort(np.concatenate([0.5 + 1e-5 * rng.uniform(size=12), rng.uniform(3, 10, 36)]))
    A = DenseOperator(hermitian(5, spectrum))
    with pytest.raises(
        EigenpairsNotConverged, match=r"cut a cluster.*: ask for \d+ vectors instead of 3"
    ) as e:
        BlockLanczos(3, 1, tolerance=1e-12).solve(A)
    assert e.value.eigenpairs.restarts < 100 and e.value.eigenpairs.extras["ask_for"] > 3
