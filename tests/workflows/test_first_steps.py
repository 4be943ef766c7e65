"""What a new user types first: the version, a file to start from, the schema for an editor, completion."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tiny_project import CommandLine, refused

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


@pytest.mark.parametrize("patterns", [["a b/*.ildg"], ["confs/*.1*", 'b/"quoted"*']])
@pytest.mark.parametrize("name", starter_names())
def test_a_file_for_configurations(
    quarkline: CommandLine, tmp_path: Path, name: str, patterns: list[str]
) -> None:
    given = [part for pattern in patterns for part in ("--files", pattern)]
    assert quarkline("init", name, "my.yaml", *given).code == 0
    values, shipped = (
        read_parameter_file(path).values for path in (tmp_path / "my.yaml", SHIPPED / f"{name}.yaml")
    )
    assert values["ensemble"] == {"files": patterns[0] if len(patterns) == 1 else patterns}
    assert {**values, "ensemble": None} == {**shipped, "ensemble": None}


def test_nothing_to_start_from(quarkline: CommandLine, tmp_path: Path) -> None:
    refused(quarkline("init", "meson"), "'meson'", "did you mean 'mesons'?")
    refused(quarkline("init", "mesons", "no/such/folder/f.yaml"), "cannot write no/such/folder/f.yaml")
    assert not list(tmp_path.iterdir())


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


def test_schema_of_an_unknown_workflow(quarkline: CommandLine) -> None:
    refused(quarkline("schema", "meson"), "no workflow is named 'meson'", "mesons")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("quarkline ini", {"init"}),
        ("quarkline init g2", {"g2_disconnected", "g2_low_modes"}),
        ("quarkline schema la", {"laph_mesons"}),
    ],
)
def test_completion(
    quarkline: CommandLine, monkeypatch: pytest.MonkeyPatch, typed: str, offered: set[str]
) -> None:
    monkeypatch.setenv("_QUARKLINE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    assert set(quarkline().out.split()) == offered
