"""The number of workers alters no bit of a result: noise, solves and averages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline import Store


def arrays(path: Path) -> dict[str, dict[str, Any]]:
    """The arrays of every chunk in a store as its record has them, digests among it."""
    store = Store(path)
    chunks = [(stage, key) for stage in store.stages() for key in store.keys(stage)]
    return {key: store.record(stage, key)["arrays"] for stage, key in chunks}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 3, 4])
def test_any_number_of_workers_gives_the_same_bits(quarkline, project, workers):
    with_two = arrays(project.parent / "store")
    assert quarkline("run", project, "--workers", str(workers), "--store", "other").code == 0
    assert len(with_two) == 19 and all("digest" in a for chunk in with_two.values() for a in chunk.values())
    assert arrays(project.parent / "other") == with_two
