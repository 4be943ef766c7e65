"""`quarkline schema`: what a workflow's parameter file may hold, for editors and other programs."""

from __future__ import annotations

from typing import Annotated

import typer

from workflows.names import workflow_names


def schema(
    name: Annotated[
        str,
        typer.Argument(
            metavar="WORKFLOW", help=f"{', '.join(workflow_names())}.", autocompletion=workflow_names
        ),
    ],
) -> None:
    """Print the JSON schema of a workflow's parameter file: keys, types, limits, defaults, descriptions.

    Editors complete and check a file whose first line names it: # yaml-language-server: $schema=g2.json

    Example: quarkline schema g2_disconnected > g2.json
    """
    from json import dumps

    from workflows.catalogue import definition_of

    content = definition_of(name).schema.model_json_schema()
    content["properties"]["workflow"] = {**content["properties"]["workflow"], "const": name}
    typer.echo(
        dumps(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **content},
            indent=2,
            ensure_ascii=False,
        )
    )
