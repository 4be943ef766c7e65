"""Calls of compiled functions by address stand on Numba's insides: what they promise, with which versions."""

import numba
import numpy as np
import pytest
from numba import types

from stages.lqcd.kernels.cpu.calling import ROOM
from stages.lqcd.kernels.cpu.compiled import array_type, compiled, compiled_serial
from stages.lqcd.kernels.cpu.replay import Recorded

TRIED = ("0.62", "0.65", "0.68")
"""Versions of Numba with which this file passed. With another, run it and the slow tests of
`test_compiled.py`: what fails is in `stages/lqcd/kernels/cpu/calling.py` only. Then add the version.
"""


def test_numba_is_a_version_that_calls_were_tried_with():
    assert ".".join(numba.__version__.split(".")[:2]) in TRIED


def scaled_sums(low, high, field, table, factor, number, out):
    """A kernel with arrays of several dimensions and types, read and written, and both kinds of numbers."""
    for i in range(low, high):
        out[i] = number
        for j in range(field.shape[1]):
            out[i] += factor * field[table[i], j].real - field[table[i], j].imag


def sum_of(numbers, out):
    out[0] = 0.0
    for i in range(len(numbers)):
        out[0] += numbers[i]


@pytest.fixture(scope="module")
def kernels():
    """The kernel of all items, by threads, and one for the thread that calls."""
    out, field = array_type(float, 1, writable=True), array_type(complex, 2)
    many = types.void(field, array_type(np.int32, 1), types.float64, types.int64, out)
    shared = compiled(scaled_sums, "test_scaled_sums", many, lambda *arguments: len(arguments[-1]))
    return shared, compiled_serial(sum_of, "test_sum_of", types.void(array_type(float, 1), out))


@pytest.mark.parametrize("items", [0, 1, 2, 1001])
@pytest.mark.parametrize("threads", [1, 2])
def test_arguments_arrive_and_every_item_is_done(kernels, items, threads):
    rng, usual = np.random.default_rng(613), numba.get_num_threads()
    field = rng.normal(size=(7, 3)) + 1j * rng.normal(size=(7, 3))
    table, out, total = rng.integers(0, 7, items).astype(np.int32), np.full(items, np.nan), np.empty(1)
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    try:
        kernels[0](field, table, -2.5, 11, out)
        kernels[1](out, total)
    finally:
        numba.set_num_threads(usual)
    expected = 11 + (-2.5 * field.real - field.imag).sum(axis=1)[table]
    np.testing.assert_allclose(out, expected, rtol=1e-14)
    assert total[0] == pytest.approx(expected.sum())


def test_a_recorded_step_works_on_what_its_arrays_hold_and_keeps_them(kernels):
    out, total = np.empty(40), np.empty(1)
    field, table = np.ones((1, 2), complex), np.zeros(40, np.int32)

    def step():
        kernels[0](field, table, 2.0, 1, out)
        kernels[1](out, total)

    recorded = Recorded(step)
    recorded()
    field[...] = 3 - 1j
    for _ in range(3):
        out[...] = total[...] = np.nan
        recorded()
        assert total[0] == 40 * (1 + 2 * (2.0 * 3 + 1))


def test_arguments_that_no_room_holds_are_refused():
    def nothing(numbers):
        pass

    signature = types.void(types.UniTuple(types.int64, ROOM // 8 + 1))
    with pytest.raises(Exception, match="must fit 2048 bytes"):
        compiled_serial(nothing, "test_too_many", signature)
