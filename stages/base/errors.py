"""Errors that engine, library and workflows share: a user's mistake, and a machine's."""

from __future__ import annotations

from collections.abc import Iterable, Set
from difflib import get_close_matches
from numbers import Integral, Real
from sys import float_info
from typing import Any


class InputError(ValueError):
    """A user's mistake: the message names the thing, its value, the limit and the remedy."""


class NoRoomError(InputError, MemoryError):
    """More memory was asked for than there is: the message says by what, and what takes less."""


class DisagreementError(ArithmeticError):
    """Numbers that should be the same and are not: memory, a transfer, or arithmetic went wrong."""


class WrongResultError(DisagreementError):
    """A result that its repetition by another path contradicts: all that its worker computed is in doubt."""


def _written(value: object) -> str:
    """A number as it is written, by its size where Python refuses to write it."""
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        return f"a whole number of {value.bit_length()} bits"
    return repr(value)


def check_whole(name: str, value: object, least: int) -> None:
    """Raise InputError unless a value is a whole number, Python's or NumPy's, of at least `least`."""
    if not isinstance(value, Integral) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {_written(value)}")


def check_number(name: str, value: Any) -> None:
    """Raise InputError unless a value is a real number, Python's or NumPy's, as of `check_magnitude`."""
    number = value
    if isinstance(value, bool) or not isinstance(value, Real) or not abs(number) <= float_info.max:
        raise InputError(f"{name} must be a finite real number, got {_written(value)}")
    check_magnitude(number, f"{name} = ")


MOST_BITS = 1100
"""A double has 1024 before its point at most."""

EXTREME = 1e30
"""Limit of a number, and its inverse that of one that is not 0: products of ten such are still doubles."""


def check_magnitude(value: float, name: str = "") -> None:
    """Raise InputError for a number whose squares and products may overflow, or vanish and be divided by."""
    if value and not 1 / EXTREME <= abs(value) <= EXTREME:
        raise InputError(
            f"{name}{_written(value)} has squares and products beyond the range of floating-point numbers: "
            f"take 0, or {1 / EXTREME:g} to {EXTREME:g} in magnitude"
        )


def nearest(word: object, known: Iterable[str]) -> str | None:
    """The known word that a misspelt one most resembles, None if none is close."""
    return next(iter(get_close_matches(str(word), list(map(str, known)), n=1)), None)


def suggestion(word: object, known: Iterable[str], mark: str = "'") -> str:
    """The end of a message on a misspelt word: `": did you mean 'mass'?"`, or the list of what is known.

    The list is in its own order or, for a set, sorted.

    Args:
        word: the misspelt word.
        known: the words that there are.
        mark: what stands on both sides of the suggested word.
    """
    names = sorted(map(str, known)) if isinstance(known, Set) else list(map(str, known))
    if close := nearest(word, names):
        return f": did you mean {mark}{close}{mark}?"
    return f"; known: {', '.join(names)}" if names else ""
