"""JSON objects as dataclasses, checked as deep as their annotations go: what a store holds may be foreign."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

Fits = Callable[[object], bool]
"""Tells whether a value is of one type."""

Types = Mapping[str, tuple[frozenset[type], Fits]]
"""Of values by name: types of which any value will do, which is seen fast, and the whole check."""

LARGEST = 1 << 63
"""Integers are smaller: whatever follows may hold them as a float, or in 64 bits."""


def field_types(cls: type, *without: str) -> Types:
    """Checks of the values of a dataclass by name, as JSON gives them."""
    hints = get_type_hints(cls)
    return {each.name: _check(hints[each.name]) for each in fields(cls) if each.name not in without}


def known_and_other(content: Mapping[str, Any], types: Types) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values of an object that have a name and type of these, and all others in it."""
    known: dict[str, Any] = {}
    other: dict[str, Any] = {}
    for name, value in content.items():
        exact, fit = types.get(name, _NONE)
        if type(value) in exact or fit(value):
            known[name] = value
        else:
            other[name] = value
    return known, other


def expect(content: object, kind: type, what: str) -> dict[str, Any]:
    """An object with all that a TypedDict asks for, and other values.

    Raises:
        ValueError: it is none; names what is of another type, or lacking.
    """
    if not isinstance(content, dict):
        raise ValueError(f"{what} is no object: {content!r:.80}")
    for name, (needed, fit) in _items(kind).items():
        if name in content and not fit(content[name]):
            raise ValueError(f"{what} has {name} = {content[name]!r:.80}")
        if needed and name not in content:
            raise ValueError(f"{what} has no {name}")
    return content


@cache
def fits(kind: Any) -> Fits:
    """The check of a type: of numbers, texts, None, lists and objects of these, and TypedDicts.

    Numbers are finite and no booleans; a list or tuple serves for any sequence, a dictionary for any mapping.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _any(*map(fits, inner))
    if is_typeddict(kind):
        return lambda value: _is_object(value, kind)
    if origin is tuple and inner[-1] is not Ellipsis:
        each = tuple(map(fits, inner))
        return lambda value: (
            isinstance(value, (list, tuple))
            and len(value) == len(each)
            and all(fit(item) for fit, item in zip(each, value, strict=True))
        )
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(fits(inner[1]))
    if origin is not None and issubclass(origin, Sequence):
        return _sequence(inner[0])
    return _SIMPLE[kind]


def _any(*kinds: Fits) -> Fits:
    return lambda value: any(fit(value) for fit in kinds)


def _mapping(fit: Fits) -> Fits:
    if fit is _anything:
        return lambda value: isinstance(value, dict)
    return lambda value: isinstance(value, dict) and all(map(fit, value.values()))


def _sequence(kind: Any) -> Fits:
    """Of a list; one of texts and integers, as of coordinates, may be long, and its integers of any size."""
    fit, exact = fits(kind), _exact(kind, str, int)
    return lambda value: (
        isinstance(value, (list, tuple)) and (exact.issuperset(map(type, value)) or all(map(fit, value)))
    )


def _check(kind: Any) -> tuple[frozenset[type], Fits]:
    return _exact(kind, str, bool, NoneType), fits(kind)


def _exact(kind: Any, *types: type) -> frozenset[type]:
    """Which of these types a kind names, itself or one of several."""
    named = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return frozenset(types).intersection(named)


def _anything(value: object) -> bool:
    return True


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def _is_number(value: object) -> bool:
    return math.isfinite(value) if isinstance(value, float) else _is_integer(value)


def _is_object(value: object, kind: type) -> bool:
    try:
        expect(value, kind, "it")
    except ValueError:
        return False
    return True


@cache
def _items(kind: Any) -> Mapping[str, tuple[bool, Fits]]:
    """Of a TypedDict by name: whether it is needed, and the check of its value."""
    items = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        said = get_origin(hint) in (Required, NotRequired)
        needed = get_origin(hint) is Required if said else kind.__total__
        items[name] = needed, fits(get_args(hint)[0] if said else hint)
    return items


_NONE: tuple[frozenset[type], Fits] = frozenset(), lambda value: False

_SIMPLE: Mapping[Any, Fits] = {
    Any: _anything,
    str: lambda value: isinstance(value, str),
    bool: lambda value: isinstance(value, bool),
    int: _is_integer,
    float: _is_number,
    NoneType: lambda value: value is None,
}
