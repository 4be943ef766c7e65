"""Rows of arrays that several devices share, by the pages that they lie in: counted on addresses alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cupy")

import cupy

from stages.lqcd.kernels.cuda.devices import own_rows
from stages.lqcd.kernels.cuda.devices.own_rows import by_rows, here, runs_of_rows
from stages.lqcd.kernels.cuda.devices.partition import PAGE, Partition
from stages.lqcd.kernels.cuda.devices.spans import Span, span_of

pytestmark = pytest.mark.nvrtc

ADDRESS = 1 << 40


def spread_array(shape: tuple[int, ...], parts: int, t: int) -> tuple[Span, cupy.ndarray]:
    """An array of complex128 numbers at an address where nothing lies, and its span."""
    partition = Partition(parts, t)
    span = Span(ADDRESS, partition.runs(shape, 16), ())
    memory = cupy.cuda.UnownedMemory(ADDRESS, span.size, None, 0)
    pointer = cupy.cuda.MemoryPointer(memory, partition.begin(shape, 16))
    return span, cupy.ndarray(shape, np.complex128, pointer)


def owners(span: Span) -> np.ndarray:
    """The part of each page."""
    return np.repeat([part for part, _ in span.runs], [pages for _, pages in span.runs])


@pytest.mark.parametrize(("parts", "t"), [(2, 12), (3, 20), (4, 13), (5, 26), (8, 26)])
@pytest.mark.parametrize("shape", [(52000, 3, 40), (2, 20800, 12, 7), (48 * 9000 * 11,)], ids=str)
@pytest.mark.parametrize("columns", [slice(0, 5), slice(3, 7)])
def test_a_device_works_on_the_rows_in_its_pages(shape, columns, parts, t):
    span, array = spread_array(shape, parts, t)
    view = array.reshape(48, 9000, 11) if array.ndim == 1 else array
    (rows,) = by_rows(view[..., columns])
    runs = runs_of_rows(span, rows)
    assert [first for _, first, _ in sorted(runs, key=lambda run: run[1])] == [
        0,
        *(end for _, _, end in runs[:-1]),
    ]
    assert runs[-1][2] == len(rows)
    for part, first, end in runs:
        middles = rows.data.ptr - ADDRESS + np.arange(first, end) * rows.strides[0] + rows[:1].nbytes // 2
        assert (owners(span)[middles // PAGE] == part).all()


@pytest.mark.parametrize(
    ("segments", "sites", "parts", "t"), [(8, 13763, 3, 10), (2, 14018, 7, 24), (2, 13593, 8, 27)]
)
def test_runs_are_counted_where_a_device_has_little_more_than_a_page_of_each(
    segments: int, sites: int, parts: int, t: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    span, array = spread_array((segments, sites * t, 3), parts, t)
    monkeypatch.setattr(own_rows, "span_of", lambda array: span)
    monkeypatch.setattr(
        own_rows, "current_group", lambda: SimpleNamespace(partition=SimpleNamespace(parts=parts))
    )
    assert own_rows.cut_runs(array.reshape(-1, 3)) == segments


def test_slices_stay_whole() -> None:
    span, array = spread_array((48 * 9000 * 11,), 2, 48)
    assert runs_of_rows(span, array.reshape(48, 9000, 11)) == [(0, 0, 24), (1, 24, 48)]


def test_segments_are_those_of_the_indices_that_lead_the_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    span, array = spread_array((4, 2, 52000, 3, 3), 3, 20)
    monkeypatch.setattr(own_rows, "span_of", lambda array: span)
    assert own_rows.segments_of(array.reshape(-1, 3, 3)) == 8
    assert own_rows.segments_of(array.reshape(-1)) == 8
    assert own_rows.segments_of(array[1].reshape(-1, 3, 3)) == 2
    assert own_rows.segments_of(array[1, 1]) == 1


@pytest.mark.parametrize("view", [np.s_[:], np.s_[..., 2:5], np.s_[:, 1], np.s_[1]], ids=str)
def test_kernels_run_on_each_device_on_its_own_rows(view: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the sites are behind axes that memory skips in."""
    span, array = spread_array((4, 2, 20000, 3, 7), 3, 20)
    spread = array[view]
    alone = cupy.ndarray(spread.shape[-1:], np.complex128, cupy.cuda.MemoryPointer(array.data.mem, 0))
    group = SimpleNamespace(together=lambda on: [on(part) for part in range(3)])
    monkeypatch.setattr(own_rows, "current_group", lambda: group)
    monkeypatch.setattr(own_rows, "span_of", lambda array: None if array.ndim == 1 else span)
    monkeypatch.setattr(own_rows, "local", lambda array: array)
    monkeypatch.setattr(cupy.cuda, "get_device_id", lambda: 0)
    seen, elements = np.zeros(array.size, int), []

    def compute(small: cupy.ndarray, x: cupy.ndarray, out: cupy.ndarray) -> None:
        assert small is alone and x.shape == out.shape and x.data.ptr == out.data.ptr
        numbers = np.arange(array.size).reshape(array.shape)
        first = (out.data.ptr - array.data.ptr) // 16
        places = np.lib.stride_tricks.as_strided(
            numbers.reshape(-1)[first:], out.shape, [s // 2 for s in out.strides]
        )
        seen.reshape(-1)[places] += 1
        elements.append(out.size)

    own_rows.elementwise(compute, spread, spread, small=(alone,))
    expected = np.zeros(array.shape, int)
    expected[view] = 1
    np.testing.assert_array_equal(seen.reshape(array.shape), expected)
    assert max(elements) <= 0.4 * spread.size, "a device has all"


def test_axes_are_merged_where_memory_follows_on() -> None:
    _, array = spread_array((6, 2, 100, 3, 8), 1, 6)
    assert [rows.shape for rows in by_rows(array)] == [(3600, 8)]
    assert [rows.shape for rows in by_rows(array[..., 2:5], array[..., :3])] == [(3600, 3), (3600, 3)]
    assert [rows.shape for rows in by_rows(array[:, 1], array[:, 0])] == [(6, 100, 3, 8)] * 2
    assert by_rows(array[:, 1])[0].strides == array[:, 1].strides
    assert by_rows(array.reshape(-1))[0].shape == (array.size,)


def test_views_of_a_device_belong_to_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupy.cuda, "get_device_id", lambda: 3)
    _, array = spread_array((6, 40, 8), 1, 6)
    view = here(array[2:, 5:])
    assert (view.data.ptr, view.shape, view.strides) == (array[2:, 5:].data.ptr, (4, 35, 8), array.strides)
    assert view.data.device_id == 3 and span_of(view) is None
