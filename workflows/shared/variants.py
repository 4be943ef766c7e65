"""Parameters with one value changed, for forecasts of what alternatives cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from pydantic import BaseModel

Parameters = TypeVar("Parameters", bound=BaseModel)


def changed(parameters: Parameters, path: str, value: object) -> Parameters:
    """A copy with another value at `section.key`; nothing is checked."""
    name, _, inner = path.partition(".")
    return parameters.model_copy(
        update={name: changed(getattr(parameters, name), inner, value) if inner else value}
    )


def each(parameters: Parameters, path: str, values: Iterable[object]) -> Iterator[tuple[str, Parameters]]:
    """A copy for each of some values that is not the present one, with `section.key = value`."""
    now: object = parameters
    for name in path.split("."):
        now = getattr(now, name)
    for value in values:
        if value != now:
            yield f"{path} = {value}", changed(parameters, path, value)
