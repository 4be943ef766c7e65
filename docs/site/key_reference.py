"""The keys of a workflow's parameter file as Markdown: tables made from its JSON schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
    "minItems": "{} or more",
}
TYPES = {"string": "text", "number": "number", "integer": "whole number", "boolean": "true or false"}


def key_reference(schema: Mapping[str, Any]) -> str:
    """A section for the whole file and one for each section in it, in the order in which they are met."""
    return "\n".join(_section("The file", schema, schema["$defs"], met=set()))


def _section(name: str, section: Mapping[str, Any], known: Mapping[str, Any], met: set[str]) -> Iterator[str]:
    """Lines of a section, then those of the sections that its keys hold."""
    met.add(name)
    yield from (f"## {name}", "", section.get("description", ""), "")
    yield from ("| key | value | default | meaning |", "| --- | --- | --- | --- |")
    required, inner = section.get("required", ()), []
    for key, content in section["properties"].items():
        default = "required" if key in required else _default(content)
        meaning = " ".join(content.get("description", "").split()).replace("|", "\\|")
        yield f"| `{key}` | {_type(content, known)} | {default} | {meaning} |"
        inner += [(key, reference) for reference in _references(content)]
    yield ""
    for key, reference in inner:
        title = f"`{key}`" if name == "The file" else f"{name}`.{key}`".replace("``", "")
        if title not in met:
            yield from _section(title, known[reference], known, met)


def _references(content: Mapping[str, Any]) -> list[str]:
    """Names of the sections that a value is, or holds."""
    if "$ref" in content:
        return [content["$ref"].rpartition("/")[2]]
    parts = [*content.get("anyOf", ()), content.get("items", {}), content.get("additionalProperties", {})]
    found = (name for part in parts if part and isinstance(part, dict) for name in _references(part))
    return list(dict.fromkeys(found))


def _type(content: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """A value's type and limits for people."""
    if "const" in content:
        return f"`{content['const']}`"
    if "enum" in content:
        return ", ".join(f"`{value}`" for value in content["enum"])
    if "anyOf" in content:
        kinds = dict.fromkeys(_type(each, known) for each in content["anyOf"] if each.get("type") != "null")
        return " or ".join(kinds)
    if "$ref" in content:
        return "section"
    if content.get("type") == "array":
        each: Mapping[str, Any] = content.get("items") or next(iter(content.get("prefixItems", ())), {})
        number = content.get("minItems") if content.get("minItems") == content.get("maxItems") else None
        return f"list of {number} of {_type(each, known)}" if number else f"list of {_type(each, known)}"
    if content.get("type") == "object":
        return f"named {_type(content['additionalProperties'], known)}s"
    limits = [text.format(_shown(content[name])) for name, text in LIMITS.items() if name in content]
    return ", ".join([TYPES.get(content.get("type", ""), "any"), *limits])


def _default(content: Mapping[str, Any]) -> str:
    default = content.get("default")
    if default is None or isinstance(default, dict):
        return "-"
    return f"`{_shown(default)}`"


def _shown(value: Any) -> str:
    """A value as YAML has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return "2^63" if value == 2**63 else str(value)
