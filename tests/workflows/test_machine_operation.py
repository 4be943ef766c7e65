"""Commands for scripts: every one has `--json`, its document has a pinned schema, errors are documents."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_project import TINY, CommandLine

from workflows.command import PANELS
from workflows.commands.schema import documents
from workflows.documents import Document

ROOT = Path(__file__).parents[2]
PINNED = Path(__file__).parent / "golden" / "outputs.json"
COMMANDS = {
    name: getattr(import_module(f"workflows.commands.{name}"), name)
    for panel in PANELS.values()
    for name in panel
}
OUTPUTS = documents()

WITHOUT_JSON: set[str] = set()
"""Commands that print no JSON yet; nothing is added here."""


def document(name: str, text: str) -> dict[str, Any]:
    """A command's standard output, which is one document that its schema allows."""
    content = json.loads(text)
    schema = OUTPUTS[name].json_schema()
    assert set(content) == set(schema["required"]) == set(schema["properties"])
    assert content.pop("schema") == f"quarkline.{name}/{OUTPUTS[name].version}"
    validate(OUTPUTS[name], content)
    return content


def validate(output: Document, content: dict[str, Any]) -> None:
    """Read the values of each part of a document as what they are declared to be."""
    for part, adapter in zip(output.parts, output.adapters(), strict=True):
        names = [each.name for each in fields(part)] if isinstance(part, type) else list(part)
        adapter.validate_python([{name: content[name] for name in names}])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_prints_json(name: str) -> None:
    """A new command gets a `Document` in its module, and `json: JsonOption`."""
    if name in WITHOUT_JSON:
        assert "json" not in inspect.signature(COMMANDS[name]).parameters, f"{name} has it now"
    else:
        assert "json" in inspect.signature(COMMANDS[name]).parameters and name in OUTPUTS


def keys(schema: dict[str, Any], part: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Each key of a document, such as ``failures[].kind``, with its type."""
    if "$ref" in part:
        part = schema["$defs"][part["$ref"].rpartition("/")[2]]
    for alternative in part.get("anyOf", ()):
        yield from keys(schema, alternative, path)
    for name, inner in part.get("properties", {}).items():
        yield from keys(schema, inner, f"{path}.{name}".removeprefix("."))
    for name in ("items", "additionalProperties"):
        if isinstance(part.get(name), dict):
            yield from keys(schema, part[name], f"{path}{'[]' if name == 'items' else '{}'}")
    for position, inner in enumerate(part.get("prefixItems", ())):
        yield from keys(schema, inner, f"{path}[{position}]")
    if "anyOf" not in part and path:
        yield path, str(part.get("const", part.get("enum", part.get("type", "any"))))


def described() -> dict[str, dict[str, str]]:
    """Keys and types of all documents."""
    found: dict[str, dict[str, str]] = {}
    for output in OUTPUTS.values():
        schema = output.json_schema()
        listed = found[output.name] = {}
        for path, kind in keys(schema, schema, ""):
            listed[path] = f"{listed[path]}|{kind}" if path in listed else kind
    return found


def write() -> None:
    PINNED.write_text(json.dumps(described(), indent=1, sort_keys=True) + "\n")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["plan", "nowhere.yaml", "--json"], 2, "nowhere.yaml: no such workflow file"),
        (["run", "--json"], 2, "Missing argument 'WORKFLOW'"),
        (["rnu", "--json"], 2, "No such command 'rnu'"),
        (["status", "store", "--what", "--json"], 2, "No such option: --what"),
        (["run", "g2.yaml", "--workers", "x", "--json"], 2, "'x' is no whole number"),
        (["report", "g2.yaml", "--json"], 1, "missing in"),
        (["export", "g2.yaml", "--json"], 1, "missing in"),
        (["schema", "--output", "rnu", "--json"], 2, "did you mean `run`?"),
        (["schema", "--json"], 2, "name a workflow, or a command by --output"),
    ],
)
def test_errors_are_documents(quarkline: CommandLine, arguments: list[str], code: int, said: str) -> None:
    Path("g2.yaml").write_text(TINY)
    answer = quarkline(*arguments)
    content = document("error", answer.out)
    assert answer.code == content["exit_code"] == code and said in content["error"]
    assert content["kind"] == ("mistake" if code == 2 else "failed")
    assert "Traceback" not in answer.err and answer.err


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [(KeyboardInterrupt(), "interrupted", 130), (ZeroDivisionError("of the program"), "fault", 1)],
)
def test_other_ends_are_documents(quarkline, capsys, monkeypatch, error, kind, code):
    def ends(path: Path, changes: list[str]) -> None:
        raise error

    monkeypatch.setattr("workflows.stores.load_project", ends)
    if kind == "fault":
        with pytest.raises(ZeroDivisionError):
            quarkline("plan", "g2.yaml", "--json")
        content = document("error", capsys.readouterr().out)
    else:
        answer = quarkline("plan", "g2.yaml", "--json")
        content = document("error", answer.out)
        assert answer.code == code
    assert (content["kind"], content["exit_code"]) == (kind, code)


def test_documents_of_commands(quarkline: CommandLine, project: Path) -> None:
    """Every command that is quick on a finished run."""
    assert document("init", quarkline("init", "mesons", "mine.yaml", "--json").out)["file"] == "mine.yaml"
    assert document("plan", quarkline("plan", project, "--json").out)["missing"] == []
    assert document("status", quarkline("status", "store", "--json").out)["last_run"]["ended"]
    assert document("verify", quarkline("verify", "store", "--json").out)["damaged"] == []
    assert document("gc", quarkline("gc", project, "--dry-run", "--json").out)["removed"] is False
    exported = quarkline("export", project, "--to", "csv", "--result", "average", "--json")
    (file,) = document("export", exported.out)["files"]
    assert Path(file).exists() and file in exported.err
    schema = document("schema", quarkline("schema", "--output", "run", "--json").out)
    assert schema["of"] == "quarkline.run/1" and "states" in schema["content"]["properties"]
    assert json.loads(quarkline("schema", "--output", "run").out) == schema["content"]


def test_gc_asks_nobody_under_json(quarkline: CommandLine, project: Path) -> None:
    other = project.with_name("other.yaml")
    quarkline("init", "mesons", other)
    other.write_text(other.read_text().replace("store: mesons-store", "store: store"))
    content = document("error", quarkline("gc", other, "--json").out)
    assert "chunks of g2_disconnected would be dropped" in content["error"] and "--yes" in content["error"]


def test_the_script_of_the_documentation_drives_a_campaign(quarkline, project, monkeypatch, capsys):
    """On a finished run; its commands run inside this process."""
    script = (ROOT / "docs/notes/campaign.py").read_text()
    printed: list[str] = []

    def run(words: list[str], **_: Any) -> SimpleNamespace:
        printed.append(capsys.readouterr().out)
        answer = quarkline(*words[1:])
        return SimpleNamespace(returncode=answer.code, stdout=answer.out)

    monkeypatch.setattr("subprocess.run", run)
    campaign: dict[str, Any] = {"__name__": "campaign"}
    exec(script, campaign)
    assert campaign["main"](project.name) == 0
    assert ": 0 chunks in" in printed[1] and "tables" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"gone\.yaml: no such workflow file"):
        campaign["main"]("gone.yaml")


def test_names_that_are_no_text_are_in_documents() -> None:
    """Of a folder, as the file system gives it, and in what was read of a log."""
    keys = Document("any", {"place": Path, "facts": dict[str, Any]})
    content = keys.content(
        {"place": Path("/a\udcff"), "facts": {"said": "b\udcff", "residual": float("nan")}}
    )
    assert (content["place"], content["facts"]) == ("/a\udcff", {"said": "b\udcff", "residual": None})
    assert json.loads(json.dumps(content)) == content


def test_documents_are_what_their_version_says() -> None:
    text = (ROOT / "docs/machine.md").read_text()
    assert set(re.findall(r"`(quarkline\.\w+/\d+)`", text)) == {output.name for output in OUTPUTS.values()}

    text = (ROOT / "docs/machine.md").read_text()
    assert set(re.findall(r"`(quarkline\.\w+/\d+)`", text)) == {output.name for output in OUTPUTS.values()}

    pinned, found = json.loads(PINNED.read_text()), described()
    for name, listed in found.items():
        altered = {path for path, kind in pinned.get(name, {}).items() if listed.get(path) != kind}
        assert not altered, f"{name} needs a new version: {sorted(altered)}"
    assert found == pinned, "keys were added: write the golden file, as above"
