"""JSON objects as dataclasses: events, records and entries of a ledger, of this and of other versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import NoneType
from typing import Any

Types = Mapping[str, tuple[type, ...]]

_TYPES: Types = {
    "str": (str,),
    "str | None": (str, NoneType),
    "int | str | None": (int, str, NoneType),
    "bool": (bool,),
    "int": (int,),
    "int | None": (int, NoneType),
    "float": (int, float),
    "float | None": (int, float, NoneType),
}
"""Of a value by the annotation of its field; of any other it is a list, if it is not an object."""

_OBJECTS = ("Mapping", "Coordinates", "Facts")
"""Beginnings of annotations of objects."""


def field_types(cls: type, *without: str) -> Types:
    """Types of values of a dataclass by name, as JSON gives them."""
    own = {each.name: str(each.type) for each in fields(cls) if each.name not in without}
    return {
        name: (dict,) if kind.startswith(_OBJECTS) else _TYPES.get(kind, (list, tuple))
        for name, kind in own.items()
    }


def known_and_other(content: Mapping[str, Any], types: Types) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values of an object that have a name and type of these, and all others in it."""
    known: dict[str, Any] = {}
    other: dict[str, Any] = {}
    for name, value in content.items():
        if name in types and isinstance(value, types[name]):
            known[name] = value
        else:
            other[name] = value
    return known, other
