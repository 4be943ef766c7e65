"""Arrays that are stored in pieces: only what is asked for is read, and all checks still hold."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pytest
import toy_stages as toys

from pipeline import At, Dims, InputError, Place, Store, Workflow, open_result, verify
from pipeline.declare.stage import stage
from pipeline.store import group
from pipeline.store.errors import DamagedChunkError
from pipeline.store.group import PIECE_BYTES, array_digest

KEY = "7a" * 32
DIMS = {"vectors": ("time", "site", "vector")}
PIECES = {"vectors": {"time": 1, "vector": 4}}


@pytest.fixture
def vectors() -> np.ndarray:
    return np.random.default_rng(611).standard_normal((3, 5, 10)) + 0j


@pytest.fixture
def made(store: Store, vectors: np.ndarray) -> Store:
    store.create()
    store.commit("space", KEY, {"vectors": vectors}, DIMS, {}, PIECES)
    return store


def keep_only(store: Store, *names: str) -> None:
    """Remove the files of all other pieces of the vectors."""
    for piece in (store.location("space", KEY) / "vectors").glob("c.*"):
        if piece.name not in names:
            piece.unlink()


def test_pieces_have_the_shape_that_is_asked_for(made: Store, vectors: np.ndarray) -> None:
    """Verifying reads slab by slab; to NumPy they are one array."""
    folder = made.location("space", KEY) / "vectors"
    names = {f"c.{t}.0.{v}" for t in range(3) for v in range(3)}
    assert {path.name for path in folder.glob("c.*")} == names
    assert made.arrays("space", KEY)["vectors"].chunks == (1, 5, 4)

    stored = made.arrays("space", KEY)["vectors"]
    assert array_digest(stored) == array_digest(vectors)
    assert array_digest(np.asfortranarray(vectors)) == array_digest(vectors)
    assert not verify(made).damaged

    stored = made.array("space", KEY, "vectors")
    np.testing.assert_array_equal(np.asarray(stored), vectors)
    assert (stored.shape, stored.dtype, len(stored)) == (vectors.shape, vectors.dtype, 3)


def test_a_slice_needs_no_piece_but_its_own(made: Store, vectors: np.ndarray) -> None:
    keep_only(made, "c.1.0.1", "c.1.0.2")
    stored = made.arrays("space", KEY)["vectors"]
    np.testing.assert_array_equal(stored[1, :, 4:10], vectors[1, :, 4:10])
    np.testing.assert_array_equal(stored[1:2, 2:, 9:], vectors[1:2, 2:, 9:])
    with pytest.raises(DamagedChunkError, match=r"piece vectors/c\.1\.0\.0 is gone.*verify --remove"):
        stored[1, :, 3:5]


def test_a_damaged_piece_spoils_only_those_who_read_it(made: Store, vectors: np.ndarray) -> None:
    piece = made.location("space", KEY) / "vectors" / "c.2.0.0"
    content = bytearray(piece.read_bytes())
    content[3] ^= 1
    piece.write_bytes(content)
    stored = made.arrays("space", KEY)["vectors"]
    np.testing.assert_array_equal(stored[:2], vectors[:2])
    with pytest.raises(DamagedChunkError):
        stored[2]
    (found,) = verify(made).damaged
    assert found.key == KEY


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """Bytes of a piece at most."""
    monkeypatch.setattr(group, "PIECE_BYTES", PIECE_BYTES // 32)
    return group.PIECE_BYTES


def test_a_piece_that_is_asked_for_too_large_is_cut_on(store: Store, small: int) -> None:
    store.create()
    large = np.zeros((2, small // 16, 6))
    store.commit("space", KEY, {"vectors": large}, DIMS, {}, PIECES)
    assert store.arrays("space", KEY)["vectors"].chunks == (1, small // (4 * 8), 4)
    np.testing.assert_array_equal(store.load("space", KEY)["vectors"], large)


def test_writing_and_verifying_make_no_second_copy(store: Store) -> None:
    """Not even of an array that is part of a wider one."""
    store.create()
    wide = np.ones((64, 32 * 1024, 10))
    part = wide[..., :8]
    tracemalloc.start()
    try:
        store.commit("space", KEY, {"vectors": part}, DIMS, {}, PIECES)
        _, writing = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        verify(store)
        _, reading = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert part.nbytes == 8 * PIECE_BYTES
    assert writing < part.nbytes / 2 and reading < part.nbytes / 2


def spaces(**options: int) -> Workflow:
    w = Workflow("spaces")
    space = w.add(toys.space, place=Place(over={"config": ["a", "b"]}), **options)
    w.add(toys.one_vector, space)
    return w


@pytest.fixture
def files_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the pieces that this process has read."""
    found: list[str] = []
    real = Path.open

    def noting(path: Path, *mode: Any, **how: Any) -> Any:
        found.append(path.name)
        return real(path, *mode, **how)

    monkeypatch.setattr(Path, "open", noting)
    return found


def test_a_stage_reads_slices_of_an_input_in_pieces(compute, store):
    outcome = compute(spaces())
    assert not outcome.failures
    data = open_result(store, "one_vector")
    np.testing.assert_array_equal(data.values_of_one.sel(config="b"), 7 + 10 * np.arange(3) + ord("b"))
    assert set(data.read_as.values) == {1}

    at = toys.At(config="b")
    result = toys.one_vector(toys.space(at=at), at=at)
    np.testing.assert_array_equal(result.values_of_one, 7 + 10 * np.arange(3) + ord("b"))
    assert result.read_as == 0


def test_a_result_is_opened_without_its_pieces_and_read_in_part(compute, store, files_read):
    compute(spaces())
    data = open_result(store, "space")
    assert data.vectors.dims == ("config", "time", "vector")
    part = data.vectors.sel(config="b").isel(time=slice(1, 3), vector=slice(4, 6)).load()
    np.testing.assert_array_equal(part, np.add.outer(10.0 * np.arange(1, 3), [4.0, 5.0]) + ord("b"))
    pieces = [name for name in files_read if name.startswith("c.")]
    assert sorted(pieces) == ["c.1.1", "c.2.1"]
    assert data["count"].load().shape == (2,)


class Misspelt(NamedTuple):
    values: Annotated[np.ndarray, Dims("site", pieces={"sight": 2})]


class Empty(NamedTuple):
    values: Annotated[np.ndarray, Dims("site", pieces={"site": 0})]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (Misspelt, r"pieces of output 'values' along 'sight', which it does not name: did you mean 'site'"),
        (Empty, "must have at least 1 entry along 'site', got 0"),
    ],
)
def test_pieces_that_do_not_fit_are_refused(result: type, message: str) -> None:
    def broken(*, at: At) -> Any:
        raise AssertionError

    broken.__annotations__["return"] = result
    with pytest.raises(InputError, match=message):
        stage(version="1", over=("config",))(broken)
