"""The base of all JSON documents that commands print: a name with a version, and a schema from its fields."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Literal

import typer
from pydantic import BaseModel, ConfigDict

PRINTED = ConfigDict(
    extra="forbid", use_attribute_docstrings=True, json_schema_serialization_defaults_required=True
)
"""Settings of all parts of documents: no other keys, all of them there, docstrings in the schema."""


class Output(BaseModel):
    """A document that a command prints under `--json`. A key that is removed or altered needs a new version.

    Numbers that are not finite are null.
    """

    model_config = PRINTED

    command: ClassVar[str]
    version: ClassVar[int] = 1

    @classmethod
    def name(cls) -> str:
        """Name and version, the document's `schema`."""
        return f"quarkline.{cls.command}/{cls.version}"

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """The document's JSON schema."""
        content = cls.model_json_schema(mode="serialization")
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **content,
            "title": cls.name(),
            "properties": {"schema": {"const": cls.name()}, **content.get("properties", {})},
            "required": ["schema", *content.get("required", [])],
        }

    def print(self) -> None:
        """Write the document to standard output."""
        content = json.loads(self.model_dump_json())
        typer.echo(json.dumps({"schema": self.name(), **content}, indent=2))


class ErrorOutput(Output):
    """A command that ended without a result.

    kind: 'mistake' in the command line, a file or a store (exit code 2); 'failed' (1); 'interrupted' (130);
    'fault', an error in quarkline itself (1), whose traceback is on standard error.
    """

    command: ClassVar[str] = "error"

    error: str
    kind: Literal["mistake", "failed", "interrupted", "fault"]
    exit_code: int
