"""`quarkline schema`: what a parameter file may hold, and what commands print, for other programs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from workflows.names import workflow_names


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
    from json import dumps

    if (name is None) == (output is None):
        raise typer.BadParameter("name a workflow, or a command by --output", param_hint="'WORKFLOW'")
    content = _of_workflow(name) if name else _of_output(str(output))
    if json:
        from workflows.outputs.campaigns import SchemaOutput

        SchemaOutput(of=name or content["title"], content=content).print()
    else:
        typer.echo(dumps(content, indent=2, ensure_ascii=False))


def _of_workflow(name: str) -> dict[str, Any]:
    from workflows.catalogue import definition_of

    content = definition_of(name).schema.model_json_schema()
    content["properties"]["workflow"] = {**content["properties"]["workflow"], "const": name}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **content}


def _of_output(command: str) -> dict[str, Any]:
    from stages.base.errors import InputError, suggestion
    from workflows.outputs.catalogue import OUTPUTS

    if command not in OUTPUTS:
        raise InputError(
            f"no command that prints JSON is named {command!r}{suggestion(command, OUTPUTS, mark='`')}"
        )
    return OUTPUTS[command].json_schema()
