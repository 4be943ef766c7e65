"""The launch shapes chosen by measurement that were in use, for whoever keeps them with a result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_used: set[str] = set()


def note(choice: str) -> None:
    """A kernel starts in a shape that is not the model's own first."""
    _used.add(choice)


@contextmanager
def choices_used() -> Iterator[set[str]]:
    """A set that is complete when the block ends: `kernel arguments: shape` of every choice used in it."""
    global _used
    outer, _used = _used, set()
    try:
        yield _used
    finally:
        inner, _used = _used, outer
        _used |= inner
