"""The commands that move stores: what they print, and mistakes as one message."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from stores import demo, digests, filled

from pipeline import Store
from workflows.command import main


@dataclass(frozen=True)
class Answer:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


Command = Callable[..., Answer]


@pytest.fixture
def quarkline(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*arguments: str) -> Answer:
        capsys.readouterr()
        return Answer(main(arguments), *capsys.readouterr())

    return run


def refused(answer: Answer, message: str) -> None:
    """One message, no traceback, nothing on standard output, exit code 2."""
    assert answer.code == 2 and answer.out == ""
    assert "Traceback" not in answer.err and answer.err.count("error: ") == 1
    assert message in answer.err


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the stores `first` and `second`, where commands run."""
    filled(tmp_path / "first", demo("ab"), run="20261101-000000-aaaa")
    filled(tmp_path / "second", demo("bc"), run="20261102-000000-bbbb")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_stores_become_one_and_go_where_they_are_wanted(quarkline: Command, place: Path) -> None:
    merged = quarkline("merge", "first", "second", "--into", "all")
    assert merged.code == 0 and "11 chunks brought and verified" in merged.out
    assert "demo: results are of both stores; averages of them by quarkline run" in merged.out
    pushed = quarkline("push", "all", "mounted/store", "--json")
    document = json.loads(pushed.out)
    assert document["schema"] == "quarkline.push/1" and document["brought"] == 11 and not document["linked"]
    pulled = quarkline("pull", "mounted/store", "results", "--stage", "loops")
    assert pulled.code == 0 and "6 chunks brought" in pulled.out
    assert digests(Store("all")) == digests(Store("mounted/store"))
    assert Store("results").stages() == ["loops"]


def test_a_damaged_chunk_is_exit_code_1(quarkline: Command, place: Path) -> None:
    store = Store("first")
    key = min(store.keys("loops"))
    store.location("loops", key).write_bytes(b"not a chunk")
    answer = quarkline("pull", "first", "here")
    assert answer.code == 1 and "6 chunks brought" in answer.out
    assert f"loops/{key[:12]} in {store.path}: its file is not whole" in answer.out


MISTAKES = [
    (["merge", "first", "nowhere", "--into", "all"], "there is no store at"),
    (["merge", "first", "first", "--into", "all"], "is named twice: name each store once"),
    (["merge", "first", "link", "--into", "all"], "is named twice: name each store once"),
    (["merge", "first", "--into", "first"], "is both a source and the target"),
    (["merge", "first", "--into", "first/inside"], "lie in each other"),
    (["merge", "first", "--into", "future"], "has format 9"),
    (["merge", "first", "--into", "foreign"], "is a folder, but not a quarkline store"),
    (["merge", "first", "--into", "file/store"], "Not a directory"),
    (["pull", "foreign", "all"], "is a folder, but not a quarkline store"),
    (["pull", "first", "all", "--stage", "loop"], "did you mean 'loops'"),
    (["pull", "host:", "all"], "write user@host:/folder/of/store"),
    (["pull", "host:/store", "all", "--ssh", "no-such-ssh"], "no-such-ssh is not installed here"),
    (["push", "nowhere", "host:/store"], "there is no store at"),
]


def test_mistakes_are_one_message(quarkline: Command, place: Path) -> None:
    (place / "future").mkdir()
    (place / "future" / "quarkline.json").write_text('{"format": 9}')
    (place / "foreign").mkdir()
    (place / "foreign" / "file").touch()
    (place / "file").touch()
    (place / "link").symlink_to("first")
    before = digests(Store("first"))
    for arguments, message in MISTAKES:
        refused(quarkline(*arguments), message)
    assert digests(Store("first")) == before and not (place / "all").exists()
