"""Queued work and what comes back: order and lag, and a replayed step that sees its arrays as they are."""

from __future__ import annotations

import gc
import os

import numpy as np
import pytest


def test_reports_arrive_in_the_order_sent(backend):
    stream = backend.kernels.stream
    values = backend.array(np.zeros((2, 6)))
    reports = stream.reports(values)
    for step in range(5):
        for ahead in range(stream.lag(backend.xp) + 1):
            values[...] = 10 * step + ahead
            reports.send(values)
        values[...] = -1
        received = [reports.receive() for _ in range(stream.lag(backend.xp) + 1)]
        assert [report.shape for report in received] == [(2, 6)] * (stream.lag(backend.xp) + 1)
        assert [report[1, 5] for report in received] == [
            10 * step + a for a in range(stream.lag(backend.xp) + 1)
        ]


def test_discarded_reports_are_gone(backend):
    values = backend.array(np.zeros(4))
    reports = backend.kernels.stream.reports(values)
    reports.send(values)
    reports.discard()
    values[...] = 7
    reports.send(values)
    values[...] = 8
    assert (reports.receive() == 7).all()


def test_a_repeated_step_runs_once_a_call(backend, random):
    x = backend.array(random(33, 3, 2))
    y = backend.array(np.zeros((33, 3, 2), x.dtype))
    a = backend.array(np.eye(2, dtype=complex))
    step = backend.kernels.stream.repeated(lambda: backend.kernels.block_blas.update(y, x, a), backend.xp)
    for _ in range(4):
        x *= 2
        step()
    np.testing.assert_allclose(backend.host(y) * 16, 30 * backend.host(x), rtol=1e-6)


def test_a_replayed_function_gives_the_values_of_its_argument(backend, random):
    """With temporaries and reductions inside, for three shapes in turn, of which two are kept, while others
    use memory in between."""
    blas = backend.kernels.block_blas

    def function(x):
        gram = blas.gram(x, x)
        turned = blas.rotate(x, gram, backend.xp.empty_like(x))
        return turned + 2 * x

    replayed = backend.kernels.stream.replayed(function, backend.xp)
    for step in range(4):
        for rhs in (2, 5, 3):
            x = backend.array((step + 1) * random(33, 3, rhs))
            others = [backend.array(np.full(x.shape, np.nan, x.dtype)) for _ in range(4)]
            np.testing.assert_array_equal(backend.host(replayed(x)), backend.host(function(x)))
            del others


@pytest.mark.gpu
@pytest.mark.skipif("PYTEST_XDIST_WORKER" in os.environ, reason="other processes take memory of the device")
def test_a_replayed_function_that_is_gone_leaves_no_memory():
    """Without a search for circular references; its temporaries share blocks of its pool."""
    cupy = pytest.importorskip("cupy")
    from stages.lqcd.kernels.cuda.stream import replayed

    x, pool = cupy.ones(1 << 24), cupy.get_default_memory_pool()

    def used():
        pool.free_all_blocks()
        free, total = cupy.cuda.Device().mem_info
        return total - free

    gc.disable()
    try:
        before = []
        for _ in range(4):
            function = replayed(lambda x: ((x[::2] + 1) * (x[1::2] - 1) + x[::2]).reshape(-1)[::3] * 2)
            for _ in range(3):
                y = function(x)
            assert float(y[0]) == 2.0
            del y, function
            before.append(used())
        assert before[-1] <= before[0]
    finally:
        gc.enable()
