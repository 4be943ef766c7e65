"""Messages on wrong inputs, word by word: of workflow files, of the configurations they name, of commands.

The tables beside this file hold changes of the tiny workflow files: mistakes, and what is warned about. A
message that is to read otherwise is changed there as well.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tiny_g2_connected import CONNECTED
from tiny_hisq_mesons import HISQ_MESONS
from tiny_hvp import HVP
from tiny_laph import LAPH
from tiny_mesons import MESONS
from tiny_project import TINY, CommandLine

from stages.base.errors import InputError
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.lattice.formats import write_ildg
from stages.lqcd.lattice.geometry import Lattice
from workflows.catalogue import load_project

TABLES = Path(__file__).parent / "wrong_inputs"
TARGETED = TINY.replace("  vectors: 4\n", "").replace(", vectors: 2}", "}") + "target: {loops: 0.2}\n"
TINY_FILES = {"g2_disconnected": TINY, "g2_connected": CONNECTED, "g2_hvp": HVP, "target": TARGETED}
TINY_FILES |= {"mesons": MESONS, "hisq_mesons": HISQ_MESONS, "laph_mesons": LAPH}
HEATBATH = TINY.splitlines(keepends=True)[2]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(content: bytes) -> str:
    """Message on a workflow file, or warnings; that it is accepted, if it is without any."""
    Path("f.yaml").write_bytes(content)
    try:
        warnings = load_project(Path("f.yaml")).warnings
    except InputError as error:
        return str(error).removeprefix("f.yaml: ")
    return "\n".join(f"warning: {each.removeprefix('f.yaml: ')}" for each in warnings) or "accepted"


def table(name: str) -> dict[str, Any]:
    """A table of wrong inputs, where HERE is the working folder."""
    text = (TABLES / f"{name}.yaml").read_text()
    return YAML(typ="safe").load(text.replace("HERE", str(Path.cwd())))


def test_sections_about_a_cluster() -> None:
    expected = table("cluster")
    first, *rest = TINY.splitlines()
    assert {put: said("\n".join([first, put, *rest]).encode()) for put in expected} == expected


@pytest.mark.parametrize("name", TINY_FILES)
def test_changes_of_a_file(name: str) -> None:
    tiny = TINY_FILES[name]
    assert load_project(written(tiny)).workflow.nodes
    expected = table(name)
    assert all(tiny.count(text) == 1 for text in expected)
    assert {
        text: {put: said(tiny.replace(text, put).encode()) for put in entries}
        for text, entries in expected.items()
    } == expected


def written(text: str) -> Path:
    Path("good.yaml").write_text(text)
    return Path("good.yaml")


def test_whole_files() -> None:
    expected = table("whole_files")
    assert {text: said(text.encode()) for text in expected} == expected


@pytest.mark.parametrize(
    ("content", "byte"),
    [
        ("workflow: mésons\n".encode("latin-1"), "0xe9 at 11"),
        ("workflow: mesons\n".encode("utf-16"), "0xff at 0"),
        (bytes.fromhex("874e0000") + bytes(92), "0x87 at 0"),
        (bytes.fromhex("456789ab00010000") + bytes(136), "0x89 at 2"),
    ],
    ids=["latin-1", "utf-16", "MILC", "LIME"],
)
def test_files_of_no_text(content: bytes, byte: str) -> None:
    assert said(content) == (
        f"cannot be read as a text file: byte {byte} is no UTF-8; write the file in UTF-8, and give gauge "
        "configurations to `quarkline check`"
    )


def write_configuration(path: str, extents: tuple[int, int, int, int] = (4, 4, 4, 4)) -> bytes:
    lattice = Lattice(extents)
    Path(path).parent.mkdir(exist_ok=True)
    write_ildg(path, thermalised(lattice, 6.0, 3, "a", 1, 0), lattice, 64)
    return Path(path).read_bytes()


def test_configurations_in_files() -> None:
    good = write_configuration("good.ildg")
    write_configuration("copy/good.ildg")
    write_configuration("other.ildg", (4, 4, 4, 2))
    damaged = {
        "empty.ildg": b"",
        "text.ildg": b"bring milk",
        "short.ildg": good[:700],
        "wide.ildg": good.replace(b"<lx>4</lx>", b"<lx>8</lx>"),
        "typeless.nersc": b"BEGIN_HEADER\nHDR_VERSION = 1.0\nDIMENSION_1 = four\nEND_HEADER\n" + bytes(90),
        "endless.nersc": b"BEGIN_HEADER\nHDR_VERSION = 1.0\n",
        "short.milc": bytes.fromhex("874e0000") + bytes(90),
    }
    for name, content in damaged.items():
        Path(name).write_bytes(content)
    expected = table("files")
    found = {given: said(TINY.replace(HEATBATH, f"  files: {given}\n").encode()) for given in expected}
    assert found == expected
    expected = table("link_files")
    tiny = CONNECTED.replace(HEATBATH, "  files: good.ildg\n").replace(
        "charm: {mass: 0.6, naik_epsilon: -0.2}", "s: {mass: 0.2}"
    )
    found = {
        given: said(tiny.replace("antiperiodic}", f"antiperiodic, files: {given}}}").encode())
        for given in expected
    }
    assert found == expected
    write_configuration("also.ildg")
    files = "antiperiodic, files: {fat: good.ildg, long: good.ildg}}"
    both = tiny.replace("files: good.ildg", "files: [good.ildg, also.ildg]").replace("antiperiodic}", files)
    assert "`links.files.fat`: 'good.ildg' is one file for several configurations" in said(both.encode())


def test_commands(quarkline: CommandLine) -> None:
    write_configuration("good.ildg")
    Path("g2.yaml").write_text(TINY)
    Path("site.yaml").write_text("kind: slurm\ngpus: two\n")
    os.mkfifo("pipe.yaml")
    Path("long.yml").touch()
    os.truncate("long.yml", 1 << 40)
    Path("s").mkdir()
    os.mkfifo("s/quarkline.json")
    Path("two.yaml").write_text(TINY.replace("store: store", "store: two"))
    expected = table("commands")
    assert {line: answered(quarkline, line) for line in expected} == expected
    assert not Path("store").exists()


def answered(quarkline: CommandLine, line: str) -> str:
    """Message of a command that ends with exit code 2, without the frame around it."""
    answer = quarkline(*shlex.split(line))
    assert answer.code == 2 and answer.out == "" and "Traceback" not in answer.err, line
    text = " ".join(re.sub(r"╭─ Error ─+╮|[╭╮╰╯│─]", "", answer.err).split())
    text = text.replace("argument(s)", "argument")  # as some versions of Typer say
    return re.sub(r"^Usage: .* for help\. (Error: )?", "", text)
