"""Which candidate a kernel starts in: the model's first, or what the table holds for exactly this problem."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy", reason="the launch shapes live with the CUDA kernels")

from stages.lqcd.kernels.choices import choices_used, note
from stages.lqcd.kernels.cuda import block_blas, block_cg, columns, hisq_dslash
from stages.lqcd.kernels.cuda.tuning import choice
from stages.lqcd.kernels.cuda.tuning.choice import ShapeProblem, forget_choices, listening, plain_shape
from stages.lqcd.kernels.cuda.tuning.table import Entry, Table
from stages.lqcd.lattice.geometry import Lattice

SINGLE = np.dtype(np.complex64)
LATTICE = Lattice((8, 8, 8, 16))
DSLASH = (LATTICE, 16, SINGLE, 16)


def dslash_problem() -> ShapeProblem:
    """The problem that a dslash asks about."""
    asked = []

    def listener(problem: ShapeProblem) -> Any:
        asked.append(problem)
        return problem.options.launch(problem.options.shapes[0])

    with listening(listener):
        hisq_dslash.dslash_launch(*DSLASH)
    (problem,) = asked
    return problem


def entry(shape: dict[str, Any]) -> Entry:
    return Entry(shape, 1e-6, 2e-6, "2026-11-21T05:00:00+00:00", "13000", "14.2.0")


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    """What this process finds in its cache."""
    found: Table = {}
    monkeypatch.setattr(choice, "measured_choices", lambda: found)
    forget_choices()
    yield found
    forget_choices()


def test_without_measurements_the_model_decides(table: Table) -> None:
    shape = hisq_dslash.dslash_shape(LATTICE, SINGLE, 16)
    launch = hisq_dslash.dslash_launch(*DSLASH)
    assert launch == hisq_dslash.dslash_in_shape(*DSLASH, shape) and launch.choice == ""


def test_a_measured_shape_is_used_and_named(table: Table) -> None:
    problem = dslash_problem()
    last = problem.options.shapes[-1]
    table[problem.key] = entry(plain_shape(last))
    launch = hisq_dslash.dslash_launch(*DSLASH)
    assert launch.instance == problem.options.launch(last).instance
    arguments = "lattice=8x8x8x16 directions=16 dtype=complex64 n=16 dots=False form=Links18-Whole-Whole"
    assert launch.choice.startswith(f"dslash {arguments}: tile=")
    assert hisq_dslash.dslash_launch(LATTICE, 16, SINGLE, 8).choice == ""  # another problem


def test_a_shape_that_is_no_candidate_is_never_started(table: Table) -> None:
    problem = dslash_problem()
    model = hisq_dslash.dslash_launch(*DSLASH)
    for shape in (
        {},
        {"sites_per_block": 7},
        {**plain_shape(problem.options.shapes[1]), "rhs_per_thread": 3},
    ):
        table[problem.key] = entry(shape)
        forget_choices()
        assert hisq_dslash.dslash_launch(*DSLASH) == model


def test_a_changed_source_makes_measurements_void(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = dslash_problem()
    table[problem.key] = entry(plain_shape(problem.options.shapes[-1]))
    monkeypatch.setattr(choice, "source_digest", lambda file: "another")
    assert hisq_dslash.dslash_launch(*DSLASH).choice == ""


def test_the_table_is_read_once_for_each_problem(table: Table) -> None:
    problem = dslash_problem()
    first = hisq_dslash.dslash_launch(*DSLASH)
    table[problem.key] = entry(plain_shape(problem.options.shapes[-1]))
    assert hisq_dslash.dslash_launch(*DSLASH) is first


CANDIDATES = (
    [
        (hisq_dslash.dslash_launch, (lattice, directions, np.dtype(dtype), n))
        for lattice in (LATTICE, Lattice((4, 4, 4, 4)), Lattice((14, 6, 10, 4)))
        for directions in (8, 16)
        for dtype in ("complex64", "complex128")
        for n in (1, 3, 8, 12, 16, 64)
    ]
    + [
        (columns.reduction, ("dots", n, np.dtype(dtype), rows))
        for n in (1, 3, 8, 12, 16, 64)
        for dtype in ("complex64", "complex128")
        for rows in (384, 2359296)
    ]
    + [
        (kernel, (nx, ny, np.dtype(dtype), rows))
        for kernel in (block_blas.gram_launch, block_blas.multiply_add_launch)
        for nx, ny in ((1, 1), (3, 3), (1, 64), (7, 33), (16, 16), (12, 16), (64, 64))
        for dtype in ("complex64", "complex128")
        for rows in (384, 2359296)
    ]
)


@pytest.mark.parametrize(("kernel", "arguments"), CANDIDATES)
def test_candidates_are_few_and_differ(kernel: Any, arguments: tuple[Any, ...]) -> None:
    options = inspect.unwrap(kernel)(*arguments)
    assert 1 <= len(options.shapes) <= 14 and len(set(options.shapes)) == len(options.shapes)
    for shape in options.shapes:
        launch = options.launch(shape)
        assert 1 <= launch.threads <= 1024 and launch.shared_bytes <= 163 * 1024
        assert min(launch.grid) >= 1


def test_whether_an_iteration_can_be_repeated_is_no_problem_to_measure(table: Table) -> None:
    """The tuner times the call that asks for a shape, and this one starts no kernel."""
    asked: list[ShapeProblem] = []

    def listener(problem: ShapeProblem) -> Any:
        asked.append(problem)
        return problem.options.launch(problem.options.shapes[0])

    with listening(listener):
        assert [block_cg.repeatable(width, SINGLE) for width in (1, 16, 23, 64)] == [True, True, False, True]
    assert asked == []


def test_choices_are_gathered_for_the_block_that_used_them() -> None:
    with choices_used() as outer:
        note("a")
        with choices_used() as inner:
            note("b")
        note("c")
    assert inner == {"b"} and outer == {"a", "b", "c"}
    with choices_used() as nothing:
        pass
    assert nothing == set()
