"""Batched CG with fields of 16 bytes a vector inside."""

from __future__ import annotations

import numpy as np
import pytest

from stages.errors import InputError
from stages.lqcd.dirac.staggered import Packing, StaggeredDslash
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG


def residuals(A, b, x):
    return np.linalg.norm((b - A.apply(x)).reshape(-1, b.shape[-1]), axis=0)


@pytest.mark.parametrize("action", ["hisq", "naive"])
@pytest.mark.parametrize(("mass", "tolerance"), [(0.15, 1e-12), (0.5, 1e-9)])
def test_reaches_any_tolerance_in_as_many_iterations(staggered, random_block, action, mass, tolerance):
    """Right-hand sides of very different sizes, one of them zero; 20 % are the most that it may cost."""
    A = staggered(action, mass)
    b = random_block(8, *A.shape, 4) * np.array([1e-9, 1, 0, 1e6])
    double, half = (BatchedCG(tolerance, inner=inner).solve(A, b) for inner in (None, "half"))
    assert (residuals(A, b, half.x) <= tolerance * np.linalg.norm(b.reshape(-1, 4), axis=0)).all()
    assert not half.x[..., 2].any()
    assert half.iterations <= 1.2 * double.iterations
    assert half.extras["replacements"] > 5


def test_single_half_and_a_first_guess(staggered, random_block):
    """In single precision outside; a solve that begins near the end takes few iterations."""
    A = staggered("hisq", 0.3).astype(np.complex64)
    b = random_block(9, *A.shape, 2, dtype=np.complex64)
    solution = BatchedCG(1e-5, inner="half").solve(A, b)
    assert solution.x.dtype == np.complex64 and solution.residual.max() <= 1e-5
    again = BatchedCG(1e-5, inner="half").solve(A, b, x0=solution.x)
    assert again.iterations == 0
    single = BatchedCG(1e-5).solve(A, b)
    assert solution.iterations <= 1.1 * single.iterations


def test_on_the_device(staggered, random_block, backend):
    """The same answer in about the same iterations wherever it is computed."""
    name = "cpu" if backend.xp is np else "cuda"
    A, host = staggered("hisq", 0.3, name), staggered("hisq", 0.3)
    b = random_block(10, *host.shape, 3)
    for block in (3, 16):
        dslash = StaggeredDslash(A.dslash.links, packing=Packing(block=block))
        solution = BatchedCG(1e-9, inner="half").solve(type(A)(dslash, A.mass), backend.array(b))
        expected = BatchedCG(1e-9).solve(host, b)
        np.testing.assert_allclose(backend.host(solution.x), expected.x, atol=1e-7 * abs(expected.x).max())
        assert solution.iterations <= 1.2 * expected.iterations


def test_is_for_batched_cg_on_staggered_operators(dense, random_block):
    for method in (BlockCGrQ, BiCGstab):
        with pytest.raises(
            InputError, match=f"inner='half' is for BatchedCG: give {method.__name__} 'single'"
        ):
            method(inner="half")
    A = dense(3, np.linspace(1, 2, 12))
    with pytest.raises(InputError, match="for staggered operators, not for DenseOperator"):
        BatchedCG(inner="half").solve(A, random_block(4, *A.shape, 2))
