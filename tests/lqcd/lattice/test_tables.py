"""Tables are one while they are used, and few when they are not."""

import gc

import numpy as np
import pytest

from stages.lqcd.lattice import geometry
from stages.lqcd.lattice.geometry import EVEN, Lattice, shared_table


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(geometry, "MOST_BYTES", 300)
    monkeypatch.setattr(geometry, "recent", geometry._Recent())
    return []


def test_tables_in_use_are_shared_and_others_are_bounded(made: list[int]) -> None:
    @shared_table
    def squares(count: int) -> np.ndarray:
        made.append(count)
        return np.arange(count, dtype=np.int32) ** 2

    held = squares(100)  # more than is kept
    assert squares(100) is held and made == [100]
    assert not held.flags.writeable
    del held
    gc.collect()
    squares(100), squares(20), squares(30), squares(20), squares(40)
    assert made == [100, 100, 20, 30, 40] and geometry.recent.nbytes == 4 * (20 + 40)
    squares(30)
    assert made[-1] == 30


def test_a_lattice_shares_its_tables() -> None:
    lattice = Lattice((4, 2, 6, 2))
    assert lattice.coordinates(EVEN) is Lattice((4, 2, 6, 2)).coordinates(EVEN)
    with pytest.raises(ValueError, match="read-only"):
        lattice.neighbour(EVEN, 2, 1)[0] = 5
