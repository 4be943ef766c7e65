"""Thin QR through the Gram matrix: orthonormal, exact, and revealing the rank, in both precisions."""

import numpy as np
import pytest

from stages.lqcd.kernels.dispatch import kernels_of
from stages.lqcd.kernels.host_lapack import cholesky
from stages.lqcd.solvers.orthonormal import orthonormalise
from stages.lqcd.solvers.recurrence import BreakdownError
from stages.lqcd.solvers.solution import SolveStatus

ROWS = 200
UNIT = {np.complex64: 1.2e-7, np.complex128: 2.2e-16}


@pytest.fixture(params=["reference", "cpu"], autouse=True)
def kernels(request):
    with kernels_of(request.param):
        yield


@pytest.fixture(params=UNIT, ids=["single", "double"])
def dtype(request):
    return request.param


def block_of(basis, random_block, singular_values, dtype):
    """A block ``[ROWS, 3, N]`` with these singular values."""
    n = len(singular_values)
    left = basis(5, 3 * ROWS)[:, :n]
    matrix = (left * singular_values) @ basis(6, n)
    return np.ascontiguousarray(matrix.reshape(ROWS, 3, n)).astype(dtype)


def decomposed(block, **options):
    """(Q as a matrix, S, rank); checks what holds for every block."""
    q = block.copy()
    rank, S = orthonormalise(q, **options)
    Q = q.reshape(-1, q.shape[-1]).astype(complex)
    assert not Q[:, rank:].any() and not S[rank:].any()
    return Q, S, rank


@pytest.mark.parametrize("digits", [0, 0.2, 0.4, 0.6, 0.8])
def test_orthonormal_and_exact(dtype, basis, random_block, digits):
    """However ill-conditioned the block is: up to 0.8 of all digits that its elements have."""
    block = block_of(basis, random_block, np.geomspace(1, UNIT[dtype] ** digits, 8), dtype)
    Q, S, rank = decomposed(block)
    assert rank == 8
    assert abs(Q.conj().T @ Q - np.eye(8)).max() < 10 * np.sqrt(UNIT[dtype])
    assert abs(Q @ S - block.reshape(-1, 8)).max() < 100 * UNIT[dtype]


@pytest.mark.parametrize("rank", [0, 1, 3, 7])
def test_rank_is_found(dtype, basis, random_block, rank):
    singular_values = np.where(np.arange(8) < rank, np.linspace(1, 2, 8), 0)
    block = block_of(basis, random_block, singular_values, dtype)
    Q, S, found = decomposed(block)
    assert found == rank
    assert abs(Q[:, :rank].conj().T @ Q[:, :rank] - np.eye(rank)).max(initial=0) < 10 * np.sqrt(UNIT[dtype])
    assert abs(Q @ S - block.reshape(-1, 8)).max() < 100 * UNIT[dtype]


def test_columns_of_any_size(dtype, basis, random_block):
    """Columns are scaled first: different sizes are no ill-conditioning. Zero columns stay zero."""
    sizes = np.array([1e-9, 1, 1e6, 0, 1e-4, 1, 1, 1])
    block = block_of(basis, random_block, np.linspace(1, 2, 8), dtype) * sizes.astype(block_real(dtype))
    Q, S, rank = decomposed(block)
    assert rank == 7 and not S[:, 3].any()
    error = abs(Q @ S - block.reshape(-1, 8)).max(axis=0)
    assert (error <= 100 * UNIT[dtype] * sizes).all()


def block_real(dtype):
    return np.finfo(dtype).dtype


def test_noise_below_the_floor_is_left_out(dtype, basis, random_block):
    """Columns of the size of rounding are nothing if they come from numbers of order one."""
    block = block_of(basis, random_block, np.repeat([1, UNIT[dtype]], 4), dtype)
    assert decomposed(block, floor=1.0)[2] == 4
    tiny = (block[..., :1] * UNIT[dtype]).copy()
    assert decomposed(tiny)[2] == 1 and decomposed(tiny, floor=1.0)[2] == 0


def test_of_nothing_lapack_is_not_asked(capfd):
    """It would print a complaint: of the last step of a block that is solved exactly."""
    nothing = np.zeros((0, 0), complex)
    assert cholesky(nothing)[2] == 1
    assert capfd.readouterr() == ("", "")


def test_not_finite(random_block):
    block = random_block(3, ROWS, 3, 4)
    block[17, 2, 1] = np.nan
    with pytest.raises(BreakdownError) as error:
        orthonormalise(block)
    assert error.value.status is SolveStatus.NOT_FINITE
