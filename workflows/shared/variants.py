"""Parameters with values changed, for forecasts of what alternatives cost, and for what would fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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


def less(now: int, least: int = 1) -> Sequence[int]:
    """Whole numbers below the present one, the largest first."""
    return range(now - 1, least - 1, -1)


def divisors(now: int) -> Sequence[int]:
    """Divisors of a number below itself, the largest first."""
    return [n for n in less(now) if now % n == 0]


def after(now: str, names: Sequence[str]) -> Sequence[str]:
    """Names after the present one in an order; none if it is not in it."""
    return names[names.index(now) + 1 :] if now in names else ()
