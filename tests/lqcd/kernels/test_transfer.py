"""Transfers through page-locked pieces: every byte arrives, whatever the size."""

from types import SimpleNamespace

import numpy as np
import pytest

from stages.lqcd.kernels.transfer import PIECE, copy_to_host, is_page_locked, page_locked, to_device


@pytest.mark.gpu
@pytest.mark.parametrize("count", [0, 1, PIECE // 16, 5 * PIECE // 16 + 3, 40 * PIECE // 16 - 1])
def test_there_and_back(count):
    array = np.random.default_rng(count).normal(size=(count, 2)).view(complex)
    there = to_device(array)
    assert np.array_equal(there.get(), array)
    assert np.array_equal(copy_to_host(there * 2), 2 * array)


@pytest.mark.gpu
def test_what_is_not_contiguous_arrives_in_order():
    array = np.arange(2 * PIECE // 8 + 10).reshape(2, -1).T
    assert np.array_equal(to_device(array).get(), array)
    assert np.array_equal(copy_to_host(to_device(array).T), array.T)


@pytest.mark.gpu
def test_into_an_array_of_the_device():
    array = np.random.default_rng(5).normal(size=(3, PIECE // 8 + 5))
    out = to_device(np.zeros_like(array))
    assert to_device(array[1:2], out[1:2]).data.ptr == out[1:2].data.ptr
    assert np.array_equal(out.get()[1], array[1]) and not out.get()[::2].any()


@pytest.mark.gpu
def test_from_page_locked_memory_and_parts_of_it():
    plain = np.random.default_rng(7).normal(size=(3, PIECE // 8 + 5))
    array = page_locked(plain.shape, plain.dtype)
    array[...] = plain
    assert is_page_locked(array) and is_page_locked(array[1:]) and not is_page_locked(plain)
    assert np.array_equal(to_device(array).get(), plain)
    assert np.array_equal(to_device(array[1:2]).get(), plain[1:2])
    part = array[2]
    del array
    assert is_page_locked(part) and np.array_equal(to_device(part).get(), plain[2])
    assert page_locked((0, 3), np.float64).shape == (0, 3)


def test_arrays_of_the_host_stay_there():
    array = np.arange(3)
    assert copy_to_host(array) is array


def test_where_memory_cannot_be_page_locked_it_is_ordinary(monkeypatch):
    class CUDARuntimeError(RuntimeError):
        pass

    def refuse(*_):
        raise CUDARuntimeError("cudaErrorMemoryAllocation")

    runtime = SimpleNamespace(CUDARuntimeError=CUDARuntimeError, hostRegister=refuse)  # no hostUnregister
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setattr("stages.lqcd.kernels.transfer.import_module", lambda _: cupy)
    array = page_locked((3, 5), np.complex64)
    array[...] = 2
    assert array.shape == (3, 5) and array.dtype == np.complex64 and array.sum() == 30
