"""BLAS takes one thread in solvers, eigensolvers and multigrid setups, and as many as before afterwards."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from stages.lqcd.eigen.batched_lanczos import BatchedLanczos
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.kernels.host_lapack import in_one_blas_thread
from stages.lqcd.multigrid.setup import Multigrid
from stages.lqcd.solvers.krylov import iterated


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_threads_are_limited_and_given_back() -> None:
    @in_one_blas_thread
    def inside(fail: bool) -> set[int]:
        np.linalg.eigvalsh(np.eye(3))
        assert blas_threads() == {1}
        if fail:
            raise ValueError
        return blas_threads()

    with threadpool_limits(2, user_api="blas"):
        assert inside(False) == {1} and blas_threads() == {2}
        with pytest.raises(ValueError):
            inside(True)
        assert blas_threads() == {2}


@pytest.mark.parametrize("method", [BatchedLanczos.solve, BlockLanczos.solve, Multigrid.setup, iterated])
def test_methods_that_are_limited(method: object) -> None:
    assert method.__wrapped__.__qualname__ == method.__qualname__
