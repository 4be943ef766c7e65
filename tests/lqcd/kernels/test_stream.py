"""Queued work and what comes back: order and lag, and a replayed step that sees its arrays as they are."""

import gc
import os
from types import SimpleNamespace

import numpy as np
import pytest

from stages.lqcd.kernels import cg_update, stream
from stages.lqcd.kernels.cg_update import CGCoefficients
from stages.lqcd.kernels.dispatch import around_kernels, kernels_of


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
    x = backend.array(random(33, 3, 3))
    y = backend.array(np.zeros((33, 3, 3), x.dtype))
    a = backend.array(np.eye(3, dtype=complex))
    step = backend.kernels.stream.repeated(lambda: backend.kernels.block_blas.update(y, x, a), backend.xp)
    for _ in range(4):
        x *= 2
        step()
    np.testing.assert_allclose(backend.host(y) * 16, 30 * backend.host(x), rtol=1e-6)


def a_step(backend, rng):
    """Step of conjugate gradients without an operator, and all that it changes."""
    update = backend.kernels.cg_update
    x, p, r, ap = (backend.array(rng.standard_normal((48, 3, 1)).astype(complex)) for _ in range(4))
    c = CGCoefficients.zeros(x)
    c.numbers[...] = backend.array(rng.uniform(0.5, 1.5, c.numbers.shape))

    def step():
        update.cg_advance(x, p, r, c)
        update.cg_residual(r, ap, c)

    return step, (x, p, r, c.numbers)


def test_a_recorded_step_does_what_the_step_does(backend):
    plain, expected = a_step(backend, np.random.default_rng(2003))
    step, changed = a_step(backend, np.random.default_rng(2003))
    recorded = backend.kernels.stream.recorded(step, backend.xp)
    for _ in range(4):
        plain(), recorded()
        for one, other in zip(changed, expected, strict=True):
            assert np.array_equal(backend.host(one), backend.host(other))
            one *= 1.5
            other *= 1.5


def test_a_step_is_recorded_where_nobody_looks_and_kernels_are_compiled():
    host = SimpleNamespace(kernels=SimpleNamespace(cg_update=cg_update), array=np.asarray)

    def calls_in_three():
        step, calls = a_step(host, np.random.default_rng(2011))[0], []
        recorded = stream.recorded(lambda: (calls.append(1), step()), np)
        recorded(), recorded(), recorded()
        return len(calls)

    assert calls_in_three() == 1
    with around_kernels(lambda implementation: implementation):
        assert calls_in_three() == 3
    with kernels_of("reference"):
        assert calls_in_three() == 3


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
        for sites in (20, 47, 33):
            x = backend.array((step + 1) * random(sites, 3, 3))
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
