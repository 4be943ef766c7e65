"""More right-hand sides than a backend takes at once are solved in equal parts, with one Solution."""

from contextlib import nullcontext

import numpy as np
import pytest

from stages.base.errors import NoRoomError
from stages.lqcd.kernels import block_blas, stream
from stages.lqcd.kernels.dispatch import as_numpy, to_device_like
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.krylov import equal_parts
from stages.lqcd.solvers.recurrence import WIDTHS
from stages.lqcd.solvers.solution import NotConverged, SolveStatus

EXTRAS = {"replacements", "deflations"}


@pytest.fixture
def at_most_five(monkeypatch):
    """A backend whose kernels take five columns."""
    monkeypatch.setattr(block_blas, "widest", lambda xp: 5)


@pytest.mark.parametrize(
    ("columns", "widest", "widths"),
    [(96, 64, [48, 48]), (64, 64, [64]), (130, 64, [43, 43, 44]), (65, 64, [32, 33]), (3, 1, [1, 1, 1])],
)
def test_parts_are_equal_and_hold_every_column_once(columns, widest, widths):
    parts = equal_parts(columns, widest)
    assert sorted(part.stop - part.start for part in parts) == widths
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert parts[-1].stop == columns


@pytest.mark.usefixtures("reference_kernels")
@pytest.mark.parametrize(("method", "widths"), [(BatchedCG, WIDTHS), (BlockCGrQ, ())])
def test_kernels_are_told_what_a_block_may_narrow_to(dense, method, widths, monkeypatch):
    told = []
    monkeypatch.setattr(stream, "narrowing", lambda widths, xp: nullcontext(told.append((widths, xp))))
    method().solve(dense(8, np.linspace(1, 2, 12)), np.ones((4, 3, 3), complex))
    assert told == [(widths, np)]


@pytest.mark.usefixtures("reference_kernels", "at_most_five")
@pytest.mark.parametrize("method", [BatchedCG, BlockCGrQ])
def test_parts_are_the_solves_one_after_the_other(staggered, random_block, method):
    A, solver, reports = staggered("hisq", 0.1), method(1e-9), []
    b, x0 = random_block(5, *A.shape, 12), random_block(6, *A.shape, 12)
    whole = solver.solve(A, b, x0=x0, progress=lambda number, row: reports.append((number, row.copy())))
    parts = [[np.ascontiguousarray(f[..., n : n + 4]) for f in (b, x0)] for n in (0, 4, 8)]
    alone = [solver.solve(A, part, x0=guess) for part, guess in parts]
    assert np.array_equal(whole.x, np.concatenate([part.x for part in alone], axis=-1))
    assert np.array_equal(whole.residual, np.concatenate([part.residual for part in alone]))
    assert whole.status is SolveStatus.CONVERGED and whole.extras.keys() == EXTRAS
    for total in ("iterations", "matvecs"):
        assert getattr(whole, total) == sum(getattr(part, total) for part in alone)
    assert whole.extras["replacements"] == sum(part.extras["replacements"] for part in alone)
    assert whole.history.shape == (whole.iterations + 1, 12)
    assert (whole.history[alone[0].iterations, 4:] == 1).all()
    assert np.array_equal(whole.history[-1], np.concatenate([part.history[-1] for part in alone]))
    assert [iteration for iteration, _ in reports] == list(range(1, whole.iterations + 1))
    assert all(row.shape == (12,) for _, row in reports)


@pytest.mark.usefixtures("reference_kernels", "at_most_five")
def test_a_part_that_fails_leaves_the_others(staggered, random_block):
    """The limit holds in each part; the right-hand sides of the second are zero and done at once."""
    A, solver = staggered("hisq", 0.1), BatchedCG(1e-9, max_iterations=3)
    b = random_block(7, *A.shape, 8)
    b[..., 4:] = 0
    with pytest.raises(NotConverged, match="4 of 8 right-hand sides missed") as failure:
        solver.solve(A, b)
    solution = failure.value.solution
    assert solution.status is SolveStatus.ITERATION_LIMIT and solution.iterations == 3
    assert not solution.residual[4:].any() and (solution.residual[:4] > 1e-9).all()


class InLittleMemory(BatchedCG):
    """A solver that no memory has room for."""

    def begin(self, A, residual, *arguments):
        raise MemoryError


@pytest.mark.usefixtures("reference_kernels")
def test_what_memory_has_no_room_for_is_one_message(staggered, random_block):
    A = staggered("hisq", 0.1)
    b = random_block(9, *A.shape, 7)
    with pytest.raises(NoRoomError, match=r"no room for InLittleMemory with 7 right-hand sides of 2\.15e"):
        InLittleMemory(1e-9).solve(A, b)


@pytest.mark.gpu
@pytest.mark.parametrize("method", [BatchedCG, BlockCGrQ])
def test_wide_blocks_on_a_gpu(staggered, random_block, method):
    """Ninety-six columns, which no kernel takes at once."""
    A, plain = staggered("hisq", 0.1, "cuda"), staggered("hisq", 0.1)
    b = random_block(8, *A.shape, 96)
    solution = method(1e-9).solve(A, to_device_like(b, A.dslash.links.fat))
    difference = np.linalg.norm(b - plain.apply(as_numpy(solution.x)), axis=(0, 1))
    assert (difference <= 1.1e-9 * np.linalg.norm(b, axis=(0, 1))).all()
    assert (solution.residual <= 1e-9).all()


@pytest.mark.usefixtures("at_most_five")
def test_columns_that_are_not_finite_have_their_numbers_in_all_parts(dense, random_block):
    A = dense(41, np.linspace(1, 2, 60))
    b, reports = random_block(42, *A.shape, 12), []
    b[4, 1, [1, 10]] = np.nan
    with pytest.raises(NotConverged, match=r"^right-hand sides 1, 10 are not finite") as e:
        BatchedCG(1e-9).solve(A, b, progress=lambda iteration, row: reports.append(row.copy()))
    solution = e.value.solution
    assert solution.status is SolveStatus.NOT_FINITE and np.isfinite(reports).all()
    assert np.flatnonzero(~(solution.residual <= 1e-9)).tolist() == [1, 10]
