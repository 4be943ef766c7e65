"""The one error that a user of the engine can cause and cure."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """A mistake in a declaration, a workflow or a store: names the thing, its value and the remedy."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'mass'?"` for a misspelt word, the list of what is known otherwise."""
    names = sorted(known)
    close = get_close_matches(word, names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}" if names else ""
