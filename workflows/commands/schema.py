"""`quarkline schema`: what a parameter file may hold, and what commands print, for other programs."""

from __future__ import annotations

from importlib import import_module
from json import dumps
from pkgutil import iter_modules
from typing import Annotated, Any

import typer

from stages.base.errors import InputError, suggestion
from workflows import commands
from workflows.catalogue import definition_of
from workflows.documents import ERROR, Document
from workflows.names import workflow_names
from workflows.terminal import put

DOCUMENT = Document(
    "schema",
    {"of": str, "content": dict[str, Any]},
    about="A JSON schema: of a workflow's parameter file, or of a command's JSON.",
)


def schema(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="WORKFLOW", help=f"{', '.join(workflow_names())}.", autocompletion=workflow_names
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            metavar="COMMAND",
            help="Instead, the schema of what this command prints under --json.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print it inside a document as other commands do.")
    ] = False,
) -> None:
    """Print the JSON schema of a workflow's parameter file: keys, types, limits, defaults, descriptions.

    With `--output COMMAND`, that of the JSON which a command prints; `error` for that of errors.

    Editors complete and check a file whose first line names it: # yaml-language-server: $schema=g2.json

    Example: quarkline schema g2_disconnected > g2.json

    Example: quarkline schema --output run
    """
    if (name is None) == (output is None):
        raise typer.BadParameter("name a workflow, or a command by --output", param_hint="'WORKFLOW'")
    content = _of_workflow(name) if name else _of_output(str(output))
    if json:
        DOCUMENT.print({"of": name or content["title"], "content": content})
    else:
        put(dumps(content, indent=2, ensure_ascii=False))


def _of_workflow(name: str) -> dict[str, Any]:
    content = definition_of(name).schema.model_json_schema()
    content["properties"]["workflow"] = {**content["properties"]["workflow"], "const": name}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **content}


def documents() -> dict[str, Document]:
    """All that commands print under `--json`, by the command's name."""
    modules = [import_module(f"{commands.__name__}.{each.name}") for each in iter_modules(commands.__path__)]
    found = [each for module in modules for each in vars(module).values() if isinstance(each, Document)]
    return {each.command: each for each in (*found, ERROR)}


def _of_output(command: str) -> dict[str, Any]:
    known = documents()
    if command not in known:
        raise InputError(
            f"no command that prints JSON is named {command!r}{suggestion(command, known, mark='`')}"
        )
    return known[command].json_schema()
