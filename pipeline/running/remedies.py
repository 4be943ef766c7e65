"""Values of a workflow's parameters with which a plan fits into memory, found with its own cost functions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.planning.workflow import Economies, Workflow
from stages.base.errors import InputError

Changes = Mapping[str, Any]
"""Values by key of the parameter file; None: the key is left out."""


@dataclass(frozen=True)
class Remedies:
    """Changes of which each makes a plan fit; where none does, the least bytes that changes lead to."""

    changes: tuple[Changes, ...]
    least: int

    @property
    def text(self) -> str:
        """The changes in words."""
        return "; or ".join(map(_words, self.changes))


def _words(changes: Changes) -> str:
    values = [f"`{key}: {value}`" for key, value in changes.items() if value is not None]
    absent = [f"`{key}`" for key, value in changes.items() if value is None]
    parts = (("with", values), ("without", absent))
    return " and ".join(f"{word} {' and '.join(names)}" for word, names in parts if names)


def remedies(economies: Economies, needed: Callable[[Workflow], int], room: int) -> Remedies:
    """Every single change that makes a plan fit, or one of several keys together where none does alone.

    Of each key the value that takes most and still fits.

    Args:
        economies: what may be changed.
        needed: bytes that the plan of a workflow needs.
        room: bytes that there are.
    """
    search = _Search(economies, needed, room)
    alone = [one for key in economies.values for one in search.first_fitting({}, key)]
    if alone:
        return Remedies(tuple(alone), room)
    together = search.together()
    if search.bytes(together) > room:
        return Remedies((), search.bytes(together))
    # of each as little as is needed: of the last, which alter most, first
    for key in reversed(list(together)):
        others = {name: value for name, value in together.items() if name != key}
        fits = [others] if search.bytes(others) <= room else search.first_fitting(others, key)
        together = search.ordered(fits[0])
    return Remedies((together,), room)


@dataclass(frozen=True)
class _Search:
    economies: Economies
    needed: Callable[[Workflow], int]
    room: int
    _known: dict[tuple[tuple[str, Any], ...], int] = field(default_factory=dict)

    def bytes(self, changes: Changes) -> int:
        """Bytes that a workflow needs; those that cannot be need more than there is."""
        changes = self.ordered(changes)
        key = tuple(changes.items())
        if key not in self._known:
            try:
                workflow = self.economies.workflow(changes)
            except InputError:
                self._known[key] = 2**63
            else:
                self._known[key] = self.needed(workflow)
        return self._known[key]

    def ordered(self, changes: Changes) -> Changes:
        """Changes in the order of all keys."""
        return {name: changes[name] for name in self.economies.values if name in changes}

    def first_fitting(self, others: Changes, key: str) -> Sequence[Changes]:
        """The first value of a key that fits, beside other changes; nothing if none does."""
        values = self.economies.values[key]

        def fits(value: Any) -> bool:
            return self.bytes({**others, key: value}) <= self.room

        position = bisect_left(values, True, key=fits)
        return [{**others, key: values[position]}] if position < len(values) else []

    def together(self) -> Changes:
        """The last value of each key that takes less beside those before it, as far as that is needed."""
        changes: dict[str, Any] = {}
        for key, values in self.economies.values.items():
            if self.bytes(changes) <= self.room or not values:
                continue
            trial = {**changes, key: values[-1]}
            if self.bytes(trial) < self.bytes(changes):
                changes = trial
        return changes
