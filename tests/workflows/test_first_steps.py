"""What a new user types first: the version, a file to start from, the schema for an editor, completion."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_project import CommandLine, refused

from stages.lqcd.lattice.formats import write_ildg
from stages.lqcd.lattice.geometry import Lattice
from workflows.catalogue import load_project
from workflows.command import main
from workflows.names import OWN
from workflows.parameter_file import read_parameter_file
from workflows.starters import starter_names

SHIPPED = Path(main.__code__.co_filename).parent


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_version(quarkline: CommandLine, option: str) -> None:
    answer = quarkline(option)
    assert answer.code == 0 and answer.out == f"quarkline {version('quarkline')}\n"


def test_help_names_all_workflows(quarkline: CommandLine) -> None:
    text = quarkline("--help").out
    assert all(name in text for name in OWN) and "quarkline init" in text


@pytest.mark.parametrize("name", starter_names())
def test_a_file_to_start_from(quarkline: CommandLine, tmp_path: Path, name: str) -> None:
    answer = quarkline("init", name)
    file = tmp_path / f"{name}.yaml"
    assert answer.code == 0 and f"quarkline run {name}.yaml" in answer.out
    assert f"workflows/{name}.yaml" not in file.read_text() and "# " in file.read_text()
    assert load_project(Path(f"{name}.yaml")).workflow.nodes
    refused(quarkline("init", name), f"{name}.yaml exists", "give another name")


def configurations(folder: Path, names: Sequence[str], extents: tuple[int, int, int, int]) -> None:
    """Files of cold gauge fields: their headers count."""
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        lattice = Lattice(extents)
        links = np.broadcast_to(np.eye(3, dtype=np.complex64), (4, 2, lattice.half_volume, 3, 3))
        write_ildg(folder / name, links.copy(), lattice, 32)


@pytest.mark.parametrize("patterns", [["a b/*.ildg", "confs/*"], ["confs/*.1*", 'b/"quoted"*']])
@pytest.mark.parametrize("name", starter_names())
def test_a_file_for_configurations(quarkline, tmp_path, name, patterns):
    configurations(tmp_path, ["a b/1.ildg", "confs/c.1", 'b/"quoted".2'], (8, 8, 8, 16))
    given = [part for pattern in patterns for part in ("--files", pattern)]
    assert quarkline("init", name, "my.yaml", *given).code == 0
    values, shipped = (
        read_parameter_file(path).values for path in (tmp_path / "my.yaml", SHIPPED / f"{name}.yaml")
    )
    assert values["ensemble"] == {"files": patterns[0] if len(patterns) == 1 else patterns}
    assert {**values, "ensemble": None} == {**shipped, "ensemble": None}


FITTED = {
    (8, 8, 8, 8): {("sources", "times"): [0, 4]},
    (2, 2, 2, 4): {("sources", "times"): [0, 2], ("deflation", "vectors"): 32},
    (4, 4, 4, 2): {
        ("sources", "times"): [0, 1],
        ("operators", "t0"): 0,
        ("operators", "momenta"): [[0, 0, 0], [1, 0, 0]],
    },
}


@pytest.mark.parametrize("extents", FITTED)
@pytest.mark.parametrize("name", starter_names())
def test_numbers_fit_the_lattice_of_the_files(quarkline, tmp_path, name, extents):
    """Or, where no number can be made to fit, nothing is written."""
    configurations(tmp_path, ["a/c.1", "b/c.1"], extents)
    answer = quarkline("init", name, "my.yaml", "--files", "[ab]/c.1")
    if min(extents) == 2 and name.startswith(("g2", "hisq")):
        refused(answer, "my.yaml: ", "wind around an extent of 2", "nothing is written; without --files")
        assert not Path("my.yaml").exists()
        return
    assert answer.code == 0, answer.err
    lattice = Lattice(extents)
    assert (f"(changed to fit {lattice}: sources.times" in answer.out) == (
        name in ("hisq_mesons", "laph_mesons")
    )
    text, shipped = Path("my.yaml").read_text(), (SHIPPED / f"{name}.yaml").read_text()
    values = read_parameter_file(Path("my.yaml")).values
    assert values["ensemble"] == {"files": "[ab]/c.1", "labels": "{parent}/{name}"}
    assert load_project(Path("my.yaml")).workflow.nodes
    for (section, key), number in FITTED[extents].items():
        if key in read_parameter_file(SHIPPED / f"{name}.yaml").values.get(section, {}) and name != "mesons":
            assert values[section][key] == number
    assert {line.partition("#")[2] for line in text.splitlines()} <= {
        line.partition("#")[2] for line in shipped.replace(f"workflows/{name}.yaml", "my.yaml").splitlines()
    }


def test_files_that_are_no_ensemble(quarkline: CommandLine, tmp_path: Path) -> None:
    configurations(tmp_path, ["c.1", "s/c.1"], (4, 4, 4, 8))
    configurations(tmp_path, ["d.1"], (4, 4, 4, 4))
    Path("n.1").write_text("bring milk")
    for patterns, said in {
        ("x*",): "(--files x*): no file matches 'x*', looking from",
        ("c.1", "x*"): "(--files c.1 --files x*): no file matches 'x*'",
        ("n.1",): "n.1: is not a gauge file in any known format",
        (
            "[cd].1",
        ): "d.1 is a lattice of 4x4x4x4, but c.1 is one of 4x4x4x8: take a pattern that leaves it out",
        ("~nobody/$X/*",): "variables are not expanded",
    }.items():
        given = [part for pattern in patterns for part in ("--files", pattern)]
        refused(quarkline("init", "mesons", "my.yaml", *given), "my.yaml: `ensemble.files` (--files ", said)
        assert not Path("my.yaml").exists()


def test_lattices_are_named_once_and_unquoted_patterns(quarkline: CommandLine, tmp_path: Path) -> None:
    configurations(tmp_path, ["d.1", "d.2", "d.3"], (4, 4, 4, 8))
    configurations(tmp_path, ["c.1"], (4, 4, 4, 4))
    said = "d.1 and 2 more are lattices of 4x4x4x8, but c.1 is one of 4x4x4x4: take a pattern"
    refused(quarkline("init", "mesons", "my.yaml", "--files", "*"), said)
    said = "d.2 exists: put a pattern of --files into quotes, and give a name for the new file after mesons"
    refused(quarkline("init", "mesons", "--files", "d.1", "d.2"), said)
    assert "put shell patterns into quotes" in quarkline("init", "mesons", "--files", "d.1", "d.2", "d.3").err
    Path("d.1").rename("one.1")
    Path("link.1").symlink_to("one.1")
    assert quarkline("init", "mesons", "my new.yaml", "--files", "[ol]*.1").out.endswith(
        "Preview: quarkline plan 'my new.yaml'. Run: quarkline run 'my new.yaml'\n"
    )
    refused(quarkline("plan", "my new.yaml"), "one.1 is read as 2 configurations, because of links to it")


def properties(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """All keys of all sections, by section and key."""
    sections = {"": schema, **schema["$defs"]}
    return {
        f"{name}.{key}": content
        for name, section in sections.items()
        for key, content in section.get("properties", {}).items()
    }


@pytest.mark.parametrize("name", OWN)
def test_every_key_has_a_description(quarkline: CommandLine, name: str) -> None:
    schema = json.loads(quarkline("schema", name).out)
    assert schema["properties"]["workflow"]["const"] == name
    assert set(read_parameter_file(SHIPPED / f"{name}.yaml").values) <= set(schema["properties"])
    for key, content in properties(schema).items():
        text = content.get("description", "")
        assert len(text) > 12 and text[0].isupper() | (text[0] in "|md") and text.endswith("."), key


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("quarkline ini", {"init"}),
        ("quarkline init g2", {"g2_connected", "g2_disconnected", "g2_hvp", "g2_low_modes"}),
        ("quarkline schema la", {"laph_mesons"}),
    ],
)
def test_completion(quarkline, monkeypatch, typed, offered):
    monkeypatch.setenv("_QUARKLINE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    assert set(quarkline().out.split()) == offered
