"""YAML that no workflow needs is refused with its line; what sharing sections needs is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tiny_project import TINY

from stages.base.errors import InputError
from workflows.g2_disconnected.schema import G2Parameters
from workflows.parameter_file import changed, read_parameter_file


def read(tmp_path: Path, text: str):
    file = tmp_path / "g2.yaml"
    file.write_text(text)
    return read_parameter_file(file)


def test_what_yaml_shares_and_says_beside(tmp_path: Path) -> None:
    file = read(tmp_path, "a: &a\n  x: 1\n  y: {z: 2}\nb:\n  <<: *a\n  x: 3\n")
    assert file.values == {"a": {"x": 1, "y": {"z": 2}}, "b": {"x": 3, "y": {"z": 2}}}
    assert file.line(("b", "x")) == 6
    assert file.line(("b", "y")) in (4, 5)

    file = read(tmp_path, "b: 1\na: # of what\n  0.5\n\nc: 2\n")
    assert file.values == {"b": 1, "a": 0.5, "c": 2}
    assert file.line(("c",)) == 5

    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="it is a device or a named pipe, name a file"):
        read_parameter_file(tmp_path / "pipe")


def test_a_pipe_of_the_shell_gives_its_text_to_each_reader() -> None:
    """As `quarkline plan <(command)` reads it for the workflow and for the cluster."""
    out, into = os.pipe()
    os.write(into, b"a: 1\r\nb: 2\n")
    os.close(into)
    for _ in range(2):
        assert read_parameter_file(Path(f"/dev/fd/{out}")).values == {"a": 1, "b": 2}
    os.close(out)


@pytest.mark.parametrize(
    ("change", "values", "place"),
    [
        ("b.x=3", {"a": 1, "b": {"x": 3, "y": [4, {"z": 5, "w": 6}]}}, ("b", "x")),
        ("b.y.1.z=7", {"a": 1, "b": {"x": 2, "y": [4, {"z": 7, "w": 6}]}}, ("b", "y", 1, "z")),
        ("b.y.0=8", {"a": 1, "b": {"x": 2, "y": [8, {"z": 5, "w": 6}]}}, ("b", "y", 0)),
        ("b.y=[8]", {"a": 1, "b": {"x": 2, "y": [8]}}, ("b", "y")),
        ("c.d=9", {"a": 1, "b": {"x": 2, "y": [4, {"z": 5, "w": 6}]}, "c": {"d": 9}}, ("c", "d")),
    ],
)
def test_a_change_leaves_what_is_beside_it(tmp_path, change, values, place):
    file = read(tmp_path, "a: 1\nb:\n  x: 2\n  y:\n  - 4\n  - z: 5\n    w: 6\n")
    made = changed(file, [change])
    assert (made.values, made.options) == (values, {place: f"--set {change}"})
    assert file.values == {"a": 1, "b": {"x": 2, "y": [4, {"z": 5, "w": 6}]}}
    assert made.place(place) == made.place((*place, 0)) == f"--set {change}"
    assert made.place(("a",)) == "line 1"
    expected = {**({} if place[0] == "b" else made.options), ("b",): "--set b={x: 1}"}
    assert changed(made, ["b={x: 1}"]).options == expected


BOMB = "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: !!set {x, y}\n", "line 2: a parameter file has no tags"),
        ("a: !!omap [x: 1]\n", "line 1: a parameter file has no tags"),
        ("a: 1\nb: !mine 3\n", "line 2: a parameter file has no tags"),
        ('a: 1\nstore: "x\\0y"\n', "line 2: the text 'x\\x00y' has a NUL character: remove it"),
        (f"a: {'7' * 5000}\n", "line 1: a number of 5000 digits: at most 300 are read"),
        (f"a: 0x{'f' * 5000}\n", "line 1: a number of 5002 digits: at most 300 are read"),
        ("a: " + "[" * 3000 + "]" * 3000, "line 1: more than 40 sections or lists within each other"),
        (BOMB, "with its aliases the file has more than 100000 values: write fewer aliases"),
        ("# x\n> # y\n\na: 1\n", "holds `key: value` lines, found '\\na: 1\\n'"),
        ("a: &a [*a]\n", "line 1: the alias *a stands within its own section: write the values out"),
        ("a: &a 1\nb: &a 2\n", "line 2: the anchor &a is there twice: give the second another name"),
        ("a: &a {b: &a 1}\n", "line 1: the anchor &a is there twice: give the second another name"),
    ],
    ids=[
        "set",
        "omap",
        "tag",
        "nul",
        "digits",
        "hexadecimal",
        "nesting",
        "bomb",
        "text",
        "cycle",
        "anchors",
        "nested",
    ],
)
def test_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("$SCRATCH/x", r"'\$SCRATCH/x' has a `\$`.*write the folder out"),
        ("~nobody-known/x", "'~nobody-known/x' is in the home of nobody known here: write the folder out"),
    ],
)
def test_a_store_whose_folder_no_one_expands(tmp_path: Path, folder: str, message: str) -> None:
    old = next(line for line in TINY.splitlines() if line.startswith("store:"))
    with pytest.raises(InputError, match=rf"`store` \(line \d+\): {message}"):
        G2Parameters.read(read(tmp_path, TINY.replace(old, f"store: {folder}")))
