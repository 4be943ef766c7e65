"""The comparison of two checkouts sees each array and key that differs, and no timing."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from compare_checkouts import Comparison, compared, difference, main
from pipeline import Store

STAGE = "disconnected_correlator"


def rewritten(store: Store, stage: str, **changed: float) -> None:
    """One chunk of a stage with some arrays multiplied by factors, under its old key."""
    key = next(iter(store.keys(stage)))
    arrays, record = store.load(stage, key), store.record(stage, key)
    arrays |= {name: arrays[name] * factor for name, factor in changed.items()}
    dims = {name: tuple(f"{name}{axis}" for axis in range(array.ndim)) for name, array in arrays.items()}
    store.remove(stage, key)
    record = {name: value for name, value in record.items() if name != "arrays"}
    assert store.commit(stage, key, arrays, dims, record)


def test_what_differs_is_named(project: Path) -> None:
    shutil.copytree(project.parent / "store", project.parent / "other")
    before, after = Store(project.parent / "store"), Store(project.parent / "other")
    equal = dict(compared(before, after, []))
    assert not any(each.fails(None) for each in equal.values())
    assert equal["g2_disconnected/loops_light"].counts["equal keys"] == 4
    rewritten(after, STAGE, correlator=1 + 1e-14)
    node = dict(compared(before, after, []))["g2_disconnected/correlator"]
    assert list(node.differences) == ["correlator"]
    assert node.fails(None) and node.fails(1e-16) and not node.fails(1e-12)
    after.remove(STAGE, next(iter(after.keys(STAGE))))
    node = dict(compared(before, after, []))["g2_disconnected/correlator"]
    assert node.fails(1e-12) and "stored only before" in node.missing[0]
    assert not dict(compared(before, after, [STAGE]))["g2_disconnected/correlator"].fails(None)


def test_other_keys_and_arrays_fail() -> None:
    comparison = Comparison()
    comparison.counts["changed keys"] += 1
    assert comparison.fails(1.0)

    a = np.array([1.0, 2.0, np.nan])
    assert difference(a, a * [1, 1.0005, 1]) == pytest.approx(5e-4)
    assert difference(a, np.array([1.0, np.nan, 2.0])) == np.inf
    assert difference(a, a.astype(np.float32)) == np.inf
    assert difference(np.zeros(2), np.ones(2)) == np.inf


def test_a_folder_that_is_no_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path), str(tmp_path)])
    assert "is no checkout of quarkline" in capsys.readouterr().err
