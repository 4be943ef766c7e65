"""The tuner on a GPU: wrong candidates never win, and work has the results that it has without."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
import pytest

pytest.importorskip("cupy")

import cupy

from stages.lqcd.kernels import block_blas
from stages.lqcd.kernels.cuda.compile import run
from stages.lqcd.kernels.cuda.launch import Launch
from stages.lqcd.kernels.cuda.tuning.choice import Options, listening, timed_where, tuned
from stages.lqcd.kernels.cuda.tuning.tuner import Tuner

pytestmark = pytest.mark.gpu


@dataclass(frozen=True)
class Shape:
    blocks: int
    threads: int = 1024
    kernel: str = "sum_partials"


COUNT = 4096
RIGHT = Shape(COUNT // 32)
SAME = Shape(COUNT // 32 + 1)
WRONG = (Shape(1), Shape(RIGHT.blocks, 2048), Shape(RIGHT.blocks, 1024, "no_such_kernel"))


@tuned
def sums_of(count: int) -> Options[Shape]:
    """Sums of partials; with one block most are missing, with 2048 threads the kernel cannot start."""
    return Options(
        (RIGHT, *WRONG, SAME),
        lambda shape: Launch("sum_partials.cu", shape.kernel, (shape.blocks,), shape.threads),
    )


def accumulate(partials: cupy.ndarray, total: cupy.ndarray) -> cupy.ndarray:
    """total += sums in place; returns the sums."""
    sums = cupy.zeros(COUNT)
    run(sums_of(COUNT), partials, sums, np.int32(len(partials)), np.int32(COUNT))
    total += sums
    return sums


def test_wrong_candidates_never_win_and_arguments_are_put_back() -> None:
    partials = cupy.random.default_rng(3).standard_normal((5, COUNT))
    total, tuner = cupy.ones(COUNT), Tuner()
    with listening(tuner.shape_of):
        sums = tuner.measured(accumulate)(partials, total)
    assert ceil(COUNT / 32) == RIGHT.blocks
    assert cupy.allclose(sums, partials.sum(axis=0), rtol=1e-13)
    assert cupy.allclose(total, 1 + sums, rtol=1e-15)
    (finding,) = tuner.findings
    assert set(finding.rejected) == set(map(str, WRONG)) and finding.candidates == 5
    assert finding.shape["blocks"] in (RIGHT.blocks, SAME.blocks) and finding.seconds > 0


def test_calls_without_work_are_not_timed() -> None:
    partials, tuner = cupy.ones((5, COUNT)), Tuner()
    measured = tuner.measured(timed_where(lambda partials, total: bool(total[0]))(accumulate))
    with listening(tuner.shape_of):
        measured(partials, cupy.zeros(COUNT))
        assert not tuner.findings
        measured(partials, cupy.ones(COUNT))
    assert len(tuner.findings) == 1


def test_kernels_of_the_library_are_measured_where_they_start() -> None:
    x, tuner = cupy.ones((64, 3, 8), np.complex64), Tuner()
    with tuner.at_work():
        norms2 = block_blas.norms2(x)
    assert (norms2 == 192).all()
    assert [finding.problem.split()[0] for finding in tuner.findings] == ["reduction"]
