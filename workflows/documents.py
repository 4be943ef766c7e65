"""JSON documents that commands print under `--json`: the engine's dataclasses, with a name and a version."""

from __future__ import annotations

import json
from collections.abc import Mapping
from inspect import cleandoc
from typing import Any, Literal

import pydantic

from workflows.terminal import put, say

Keys = Mapping[str, Any]
"""Types by key; `Annotated` with a description where there is one."""


class Document:
    """JSON that a command prints: the fields of dataclasses and keys of its own, one after the other.

    A key that is removed or altered needs a new version. Numbers that are not finite are null.

    Args:
        command: it is named for.
        parts: dataclasses, and types of own keys.
        about: the document in a sentence, the first part's docstring unless given.
        version: of its keys.
    """

    def __init__(self, command: str, *parts: type | Keys, about: str = "", version: int = 1) -> None:
        self.command, self.version = command, version
        self.parts, self._about = parts, about

    @property
    def name(self) -> str:
        """Name and version, the document's `schema`."""
        return f"quarkline.{self.command}/{self.version}"

    def json_schema(self) -> dict[str, Any]:
        """The document's JSON schema."""
        types: dict[str, Any] = {}
        properties: dict[str, Any] = {"schema": {"const": self.name}}
        for adapter in self.adapters():
            schema = adapter.json_schema(mode="serialization")
            types |= schema["$defs"]
            own = types.pop(schema["items"]["$ref"].rpartition("/")[2])
            properties |= {
                key: {name: value for name, value in facts.items() if name != "default"}
                for key, facts in own["properties"].items()
            }  # all keys are there
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **({"$defs": types} if types else {}),
            "additionalProperties": False,
            "description": self._about or cleandoc(str(self.parts[0].__doc__)),
            "properties": properties,
            "required": list(properties),
            "title": self.name,
            "type": "object",
        }

    def content(self, *values: Any) -> dict[str, Any]:
        """The document of a value for each part, in JSON's types; checked against the types of own keys."""
        content = {"schema": self.name}
        for adapter, value in zip(self.adapters(), values, strict=True):
            checked = adapter.validate_python([value])
            text = json.dumps(adapter.dump_python(checked, mode="json"))  # takes file names that are no text
            content |= json.loads(text, parse_constant=lambda _: None)[0]
        return content

    def print(self, *values: Any) -> None:
        """Write the document to standard output; values: one for each part."""
        put(json.dumps(self.content(*values), indent=2))

    def show(self, *values: Any, text: str, as_json: bool) -> None:
        """Write the document, or the same for people."""
        if as_json:
            self.print(*values)
        else:
            say(text)

    def adapters(self) -> list[pydantic.TypeAdapter[Any]]:
        """Types of lists with one value of each part, whose settings hold for dataclasses in them."""
        settings = pydantic.ConfigDict(
            extra="forbid", use_attribute_docstrings=True, json_schema_serialization_defaults_required=True
        )
        models = [part if isinstance(part, type) else _model(part, settings) for part in self.parts]
        return [pydantic.TypeAdapter(list[model], config=settings) for model in models]  # type: ignore[valid-type]


def _model(keys: Keys, settings: pydantic.ConfigDict) -> type:
    fields: dict[str, Any] = {}
    for key, annotation in keys.items():
        about = getattr(annotation, "__metadata__", (None,))
        fields[key] = (annotation, pydantic.Field(description=about[0]))
    return pydantic.create_model("Keys", __config__=settings, **fields)


Mistake = Literal["mistake", "failed", "interrupted", "fault"]

ERROR = Document(
    "error",
    {"error": str, "kind": Mistake, "exit_code": int},
    about="A command that ended without a result.\n\n"
    "kind: 'mistake' in the command line, a file or a store (exit code 2); 'failed' (1); "
    "'interrupted' (130);\n'fault', an error in quarkline itself (1), whose traceback is on standard error.",
)
