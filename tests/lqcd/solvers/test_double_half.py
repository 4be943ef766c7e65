"""Batched CG with 16 bytes a vector inside; on normal equations, BiCGstab and GCR with spinors in 16 bits."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.lqcd.dirac.operator import HALF, ShortStorage
from stages.lqcd.dirac.staggered import StaggeredDslash
from stages.lqcd.kernels.dispatch import as_numpy
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.kernels.short_numbers import from_half, numbers_like, to_half
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.gcr import GCR, GCRSpace, HalfDirections
from stages.lqcd.solvers.named import MULTIGRID, Solve
from stages.lqcd.solvers.normal_equations import NormalEquations

pytestmark = pytest.mark.usefixtures("reference_kernels")

WHERE = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def packed_for(block, A):
    """An operator whose links are packed for blocks of this width."""
    return replace(A, dslash=StaggeredDslash(A.dslash.links, packing=Packing(block=block)))


def residuals(A, b, x):
    return np.linalg.norm((b - A.apply(x)).reshape(-1, b.shape[-1]), axis=0)


@pytest.mark.parametrize(("mass", "tolerance"), [(0.15, 1e-12), (0.5, 1e-9)])
def test_reaches_any_tolerance_in_as_many_iterations(staggered, random_block, mass, tolerance):
    """Right-hand sides of very different sizes, one of them zero; 20 % are the most that it may cost."""
    A = packed_for(4, staggered("hisq", mass))
    assert isinstance(A.storage(HALF), ShortStorage)
    b = random_block(8, *A.shape, 4) * np.array([1e-9, 1, 0, 1e6])
    double, half = (
        BatchedCG(tolerance, precision=precision).solve(A, b) for precision in ("double", "double-half")
    )
    assert (residuals(A, b, half.x) <= tolerance * np.linalg.norm(b.reshape(-1, 4), axis=0)).all()
    assert not half.x[..., 2].any()
    assert half.iterations <= 1.2 * double.iterations
    assert half.extras["replacements"] > 5


@pytest.mark.parametrize(("action", "block"), [("hisq", 5), ("naive", 1)])
def test_half_is_single_where_links_have_no_form_for_short_fields(staggered, random_block, action, block):
    """Those of wide blocks and without three hops."""
    A = packed_for(block, staggered(action, 0.3))
    assert not isinstance(A.storage(HALF), ShortStorage)
    b = random_block(8, *A.shape, 2)
    half, single = (BatchedCG(1e-9, precision=f"double-{p}").solve(A, b) for p in ("half", "single"))
    assert np.array_equal(half.x, single.x) and half.iterations == single.iterations


def test_single_half_and_a_first_guess(staggered, random_block):
    """In single precision outside; a solve that begins near the end takes few iterations."""
    A = packed_for(2, staggered("hisq", 0.3)).astype(np.complex64)
    b = random_block(9, *A.shape, 2, dtype=np.complex64)
    solution = BatchedCG(1e-5, precision="double-half").solve(A, b)
    assert solution.x.dtype == np.complex64 and solution.residual.max() <= 1e-5
    again = BatchedCG(1e-5, precision="double-half").solve(A, b, x0=solution.x)
    assert again.iterations == 0
    single = BatchedCG(1e-5).solve(A, b)
    assert solution.iterations <= 1.1 * single.iterations


def test_on_the_device(staggered, random_block, backend):
    """The same answer in about the same iterations wherever it is computed."""
    name = "cpu" if backend.xp is np else "cuda"
    A, host = staggered("hisq", 0.3, name), staggered("hisq", 0.3)
    b = random_block(10, *host.shape, 3)
    for block in (3, 16):
        solution = BatchedCG(1e-9, precision="double-half").solve(packed_for(block, A), backend.array(b))
        expected = BatchedCG(1e-9).solve(host, b)
        np.testing.assert_allclose(backend.host(solution.x), expected.x, atol=1e-7 * abs(expected.x).max())
        assert solution.iterations <= 1.2 * expected.iterations


def normal_cg(tolerance, precision="double"):
    return NormalEquations(BatchedCG(tolerance, precision=precision))


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("method", [BiCGstab, normal_cg, GCR])
@pytest.mark.parametrize(("mass", "tolerance"), [(0.1, 1e-12), (0.5, 1e-9)])
def test_wilson_quarks(wilson, random_block, where, method, mass, tolerance):
    """Right-hand sides of very different sizes, one of them zero; GCR is compared with single precision."""
    A, host, gcr = wilson(mass, where), wilson(mass), method is GCR
    b = random_block(8, *host.shape, 4) * np.array([1e-9, 1, 0, 1e6])
    half = method(tolerance, precision="double-half").solve(A, A.xp.asarray(b))
    other = method(tolerance, precision="double-single" if gcr else "double").solve(host, b)
    x = as_numpy(half.x)
    assert (residuals(host, b, x) <= tolerance * np.linalg.norm(b.reshape(-1, 4), axis=0)).all()
    assert not x[..., 2].any()
    assert half.iterations <= (1.1 if gcr else 1.2) * other.iterations
    assert half.extras["replacements"] > (2 if gcr else 3)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("method", [BiCGstab, normal_cg])
def test_wilson_blocks_narrow(wilson, random_block, where, method):
    """Columns that have converged leave; the others go on with their directions."""
    A, host, xp = wilson(0.1, where), wilson(0.1), wilson(0.1, where).xp
    b = random_block(12, *host.shape, 4)
    guess = BiCGstab(1e-6).solve(host, b).x
    guess[..., 3] = 0
    solver = method(1e-10, precision="double-half")
    solution = solver.solve(A, xp.asarray(b), x0=xp.asarray(guess))
    alone = solver.solve(A, xp.asarray(b[..., 3:4].copy()))
    assert solution.residual.max() <= 1e-10
    assert solution.iterations <= 1.2 * alone.iterations
    assert solution.matvecs < 2 * 4 * solution.iterations


@pytest.mark.parametrize("csw", [0.0, 1.0])
def test_the_normal_operator(wilson, random_block, backend, csw):
    """On spinors in 16 bits S^H S is what it is in double, but for some roundings to 16 bits."""
    where = "cpu" if backend.xp is np else "cuda"
    A, host = wilson(0.1, where, csw), wilson(0.1, "cpu", csw)
    x = to_half(backend.array(random_block(5, *host.shape, 3, dtype=np.complex64)))
    out, norms2 = numbers_like(x), backend.array(np.zeros(3))
    A.storage(HALF).normal().product(x, out, norms2)()
    product = host.apply(backend.host(from_half(x)).astype(complex))
    exact = host.adjoint.apply(product)
    assert np.linalg.norm(backend.host(from_half(out)) - exact) < 1e-4 * np.linalg.norm(exact)
    np.testing.assert_allclose(backend.host(norms2), np.linalg.norm(product, axis=(0, 1)) ** 2, rtol=1e-4)


@pytest.mark.parametrize("method", [BiCGstab, normal_cg, GCR])
def test_wilson_quarks_in_single_half(wilson, random_block, method):
    """In single precision outside residuals are replaced on the way as well."""
    A = wilson(-0.3)
    b = random_block(9, *A.shape, 2, dtype=np.complex64)
    solution = method(1e-6, precision="double-half").solve(A.astype(np.complex64), b)
    assert solution.x.dtype == np.complex64 and solution.residual.max() <= 1e-6
    assert solution.iterations <= 1.2 * method(1e-6).solve(A, b.astype(complex)).iterations


def test_what_gcr_keeps_in_16_bits_adds_up(wilson, random_block):
    """r is b - A y to the rounding of w, and every w that of the directions as they are kept."""
    A = wilson(0.1).astype(np.complex64)
    r = random_block(3, *A.shape, 2, dtype=np.complex64)
    space = GCRSpace(A, r.copy(), 5, None, np.zeros(2), HalfDirections)
    for _ in range(5):
        space.step()
    missed = r - A.apply(space.solution()) - space.r
    norms = np.linalg.norm(r.reshape(-1, 2), axis=0)
    assert (np.linalg.norm(missed.reshape(-1, 2), axis=0) < 5e-5 * norms).all()
    z, w = (np.array([from_half(each[k]) for k in range(5)]) for each in (space.kept.z, space.kept.w))
    for k in range(5):
        p = np.einsum("jn,jscn->scn", space.combinations[k, : k + 1], z[: k + 1]).astype(np.complex64)
        assert np.linalg.norm(A.apply(p) - w[k]) < 1e-4 * np.linalg.norm(w[k])


def test_is_for_some_methods_and_operators(dense, wilson, staggered, random_block):
    with pytest.raises(
        InputError, match=r"precision 'double-half' is for .*GCR: give BlockCGrQ 'double-single'"
    ):
        BlockCGrQ(precision="double-half")
    A = dense(3, np.linspace(1, 2, 12))
    for method, operator in ((BatchedCG, A), *product((BiCGstab, GCR), (A, staggered("hisq", 0.3)))):
        b = random_block(4, *operator.shape, 2)
        with pytest.raises(InputError, match=f"not for {type(operator).__name__}: iterate in"):
            method(precision="double-half").solve(operator, b)
    with pytest.raises(InputError, match="an operator with an adjoint, which NormalOperator has not"):
        normal_cg(1e-8, "double-half").solve(staggered("hisq", 0.3), b)
    for solver in (BiCGstab(precision="double-half"), normal_cg(1e-8, "double-half")):
        with pytest.raises(InputError, match="half precision is for the Schur complement itself"):
            solver.solve(wilson(0.1).adjoint, random_block(4, *wilson(0.1).shape, 2))
    with pytest.raises(InputError, match="solve its normal equations"):
        BatchedCG(precision="double-half").solve(wilson(0.1), random_block(4, *wilson(0.1).shape, 2))


def test_solvers_by_name():
    """Half is for all but block CGrQ."""
    assert Solve("cgnr", 1e-8, "double-half").of_regular().solver.precision == "double-half"
    for name in ("bicgstab", "gcr", MULTIGRID):
        assert Solve(name, 1e-8, "double-half").of_regular(lambda x: x).precision == "double-half"
    with pytest.raises(InputError, match="precision must be one of double, double-single, got 'double-half'"):
        Solve("block_cgrq", 1e-8, "double-half").of_regular()
