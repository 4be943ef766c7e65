"""Drivers that share a store: which tasks of a plan are this one's.

A driver claims every chunk before it sends its task. It begins with configurations that no other has claimed,
so that what stays on workers (links, deflation spaces) is made once; when none is left, it helps with those
of the others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from pipeline.declare.coordinates import Coordinate
from pipeline.declare.text import counted
from pipeline.planning.chunk import Chunk
from pipeline.planning.plan import Plan
from pipeline.running.graph import TaskPlan, united
from pipeline.store.claims import Claims

Value = tuple[str, Coordinate]
"""A coordinate of a first dimension, with the name of that."""

LOOK = 2.0
"""Seconds, at least, between two looks at what other drivers have in work."""


Sharing = Callable[[Mapping[str, TaskPlan], Callable[[TaskPlan], bool]], "Elsewhere"]
"""What of a session's tasks is left to others, by these and by what says whether one is done."""


@dataclass(frozen=True)
class Share:
    """A run's wish to share its store with other drivers.

    Args:
        waits: True to wait for what others have in work; else it is left to them, and the last one goes on.
    """

    waits: bool = False


def homes_of(plan: Plan) -> Mapping[Value, str]:
    """Names of what is best left to one driver: configurations, or those that blocks of them join.

    By the whole plan and not by what is missing of it, so that all drivers of a workflow name them alike.
    """
    homes = united({values for chunk in plan.everything if (values := _values(chunk))})
    names: dict[Value, str] = {}
    for value, home in homes.items():
        names[home] = min(repr(value), names.get(home, repr(value)))
    return {value: names[home] for value, home in homes.items()}


def _values(chunk: Chunk) -> tuple[Value, ...]:
    over = chunk.node.stage.over
    return tuple((over[0], value) for value in chunk.coordinates[over[0]]) if over else ()


class Elsewhere:
    """Tasks of a session that are not, or not yet, this driver's.

    Args:
        claims: of this driver.
        homes: of the plan.
        waits: True to wait for what others have in work; else it is left to them, and the last one goes on.
        tasks: all of the session, by name.
        is_done: True for a task whose chunks are all in the store.
    """

    def __init__(
        self,
        claims: Claims,
        homes: Mapping[Value, str],
        waits: bool,
        tasks: Mapping[str, TaskPlan],
        is_done: Callable[[TaskPlan], bool],
    ) -> None:
        self._claims, self._homes, self.waits = claims, homes, waits
        self._tasks, self._is_done = tasks, is_done
        self._left: dict[str, TaskPlan] = {}
        self._helping = False
        self._looked, self._pause = -math.inf, LOOK

    @property
    def has_tasks(self) -> bool:
        """True while tasks are left to others."""
        return bool(self._left)

    def takes(self, task: TaskPlan) -> bool:
        """True if a task is this driver's now, and what others compute for it is committed.

        Else it is kept in mind. Tasks of configurations that others have begun are taken once it helps them.
        """
        above = (each for each in map(self._tasks.get, task.after) if each)
        if all(self._is_mine(each) or self._is_done(each) for each in above):
            values = (() if self._helping else _values(chunk)[:1] for chunk in task.chunks)
            homes = (self._homes[value] for value in chain(*values))
            if self._claims.take({*homes, *(chunk.key for chunk in task.chunks)}):
                return True
        self._left[task.name] = task
        return False

    def _is_mine(self, task: TaskPlan) -> bool:
        return all(self._claims.has(chunk.key) for chunk in task.chunks)

    def look(self) -> tuple[list[TaskPlan], list[str]] | None:
        """Look after the tasks that are left; None where that was done just now.

        Returns those that others have ended, and names of tasks of which one at least is to be had.
        """
        if time.monotonic() < self._looked + self._pause:
            return None
        began = time.monotonic()
        ended = [self._left.pop(name) for name in list(self._left) if self._is_done(self._left[name])]
        self._helping = True
        free: list[str] = []
        if any(map(self.takes, self._left.values())):
            free, self._left = list(self._left), {}
        self._looked = time.monotonic()
        self._pause = max(LOOK, 10 * (self._looked - began))
        return ended, free

    def chunks(self) -> Iterator[Chunk]:
        """Chunks that are left to others."""
        return (chunk for task in self._left.values() for chunk in task.chunks)

    def __str__(self) -> str:
        drivers = ", ".join(map(str, self._claims.others())) or "drivers that have just ended"
        return f"{counted(len(self._left), 'task')} in work elsewhere: {drivers}"
