"""Where the rows of a grid lie, and what is made like them: on addresses where nothing lies."""

from math import prod
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("cupy")

import cupy

from stages.lqcd.kernels.cuda.devices import own_rows
from stages.lqcd.kernels.cuda.devices.group import OnFirst
from stages.lqcd.kernels.cuda.devices.partition import Partition
from stages.lqcd.kernels.cuda.devices.spans import Span

pytestmark = pytest.mark.nvrtc

ADDRESS = 1 << 40
PARTS, T = 3, 20
SITES = 4000 * T


@pytest.fixture(autouse=True)
def group(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = Partition(PARTS, T)
    monkeypatch.setattr(own_rows, "current_group", lambda: SimpleNamespace(partition=partition))


def spread(monkeypatch: pytest.MonkeyPatch, *shape: int) -> cupy.ndarray:
    """An array of complex128 numbers cut as a field of this shape is."""
    runs = Partition(PARTS, T).runs(shape, 16)
    assert len(runs) > 1
    monkeypatch.setattr(own_rows, "span_of", lambda array: Span(ADDRESS, runs, ()))
    memory = cupy.cuda.UnownedMemory(ADDRESS, 16 * prod(shape), None, 0)
    return cupy.ndarray(shape, np.complex128, cupy.cuda.MemoryPointer(memory, 0))


def test_runs_are_told_by_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    field = spread(monkeypatch, 2, SITES, 12, 7)
    assert own_rows.cut_runs(field) == 2
    assert own_rows.cut_runs(field[0]) == own_rows.cut_runs(field[1]) == 1
    rows = field.reshape(2 * SITES, 12, 7)
    assert own_rows.cut_runs(rows) == 2
    assert own_rows.cut_runs(rows[SITES:]) == own_rows.cut_runs(rows[:SITES]) == 1
    assert own_rows.cut_runs(rows[:, :6]) == 2
    assert own_rows.cut_runs(spread(monkeypatch, SITES, 12, 7)) == 1


def test_work_is_that_of_the_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = spread(monkeypatch, 2, SITES, 12, 7).reshape(2 * SITES, 12, 7)
    work = own_rows.site_work(rows, axis=1, per_site=2)
    assert work is not None
    assert (work.sites, work.segments, work.axis, work.per_site) == (SITES, 2, 1, 2)
    monkeypatch.setattr(own_rows, "span_of", lambda array: None)
    assert own_rows.site_work(rows) is None


def test_fields_are_cut_as_those_that_they_are_like(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = spread(monkeypatch, 2, SITES, 12, 7).reshape(2 * SITES, 12, 7)
    assert own_rows.runs_like(rows, rows.shape) == 2
    assert own_rows.runs_like(rows, (5, *rows.shape)) == 10
    assert own_rows.runs_like(rows, (SITES, 12, 7)) is None
    field = spread(monkeypatch, 4, 2, SITES, 3, 3)
    assert own_rows.runs_like(field, field.shape) is None  # as every field of this shape


def test_what_lies_on_the_first_device_by_intention_has_its_like_there(monkeypatch):
    rows = spread(monkeypatch, SITES, 12, 7)
    monkeypatch.setattr(own_rows, "span_of", lambda array: None)
    assert own_rows.runs_like(rows, rows.shape) is None
    memory = cupy.cuda.UnownedMemory(ADDRESS, rows.nbytes, OnFirst(rows), 0)
    kept = cupy.ndarray(rows.shape, rows.dtype, cupy.cuda.MemoryPointer(memory, 0))
    assert own_rows.runs_like(kept[:100], (2, 100, 12, 7)) == 0
