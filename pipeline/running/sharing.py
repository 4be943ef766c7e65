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

from scipy.cluster.hierarchy import DisjointSet

from pipeline.declare.coordinates import Coordinate
from pipeline.declare.text import counted
from pipeline.planning.chunk import Chunk
from pipeline.planning.plan import Plan
from pipeline.running.graph import TaskPlan
from pipeline.store.claims import Claims

Value = tuple[str, Coordinate]
"""A coordinate of a first dimension, with the name of that."""

LOOK = 2.0
"""Seconds, at least, between two looks at what other drivers have in work."""


@dataclass(frozen=True)
class Share:
    """A run's wish to share its store with other drivers.

    Args:
        waits: True to wait for what others have in work; else it is left to them, and the last one goes on.
    """

    waits: bool = False


class Homes:
    """Names of what is best left to one driver: configurations, or those that blocks of them join.

    By the whole plan and not by what is missing of it, so that all drivers of a workflow name them alike.
    """

    def __init__(self, plan: Plan) -> None:
        blocks = {values for chunk in plan.everything if (values := _values(chunk))}
        together = DisjointSet({value for block in blocks for value in block})
        for first, *others in blocks:
            for other in others:
                together.merge(first, other)
        names = ((subset, min(map(repr, subset))) for subset in together.subsets())
        self._names: Mapping[Value, str] = {value: name for subset, name in names for value in subset}

    def of(self, chunk: Chunk) -> str | None:
        """The home of a chunk; None for one that is not over a dimension."""
        values = _values(chunk)
        return self._names[values[0]] if values else None


def _values(chunk: Chunk) -> tuple[Value, ...]:
    over = chunk.node.stage.over
    return tuple((over[0], value) for value in chunk.coordinates[over[0]]) if over else ()


@dataclass(frozen=True)
class Sharing:
    """The share of one driver in a plan.

    Args:
        claims: of this driver.
        homes: of the plan.
        waits: True to wait for what others have in work; else it is left to them, and the last one goes on.
    """

    claims: Claims
    homes: Homes
    waits: bool = False

    def takes(
        self,
        task: TaskPlan,
        tasks: Mapping[str, TaskPlan],
        is_done: Callable[[TaskPlan], bool],
        *,
        helping: bool,
    ) -> bool:
        """True once a task is this driver's, and what others compute for it is committed.

        tasks: all of the plan by name. helping: also tasks of configurations that others have begun.
        """
        if not all(self._is_mine(above) or is_done(above) for above in map(tasks.get, task.after) if above):
            return False
        homes = () if helping else filter(None, map(self.homes.of, task.chunks))
        return self.claims.take({*homes, *(chunk.key for chunk in task.chunks)})

    def _is_mine(self, task: TaskPlan) -> bool:
        return all(self.claims.has(chunk.key) for chunk in task.chunks)


@dataclass(frozen=True)
class Look:
    """Tasks that others have brought to their end, and names of tasks of which one at least is to be had."""

    ended: list[TaskPlan]
    free: list[str]


class Elsewhere:
    """Tasks of a session that are not, or not yet, this driver's.

    Args:
        sharing: the driver's share.
        tasks: all of the session, by name.
        is_done: True for a task whose chunks are all in the store.
    """

    def __init__(
        self, sharing: Sharing, tasks: Mapping[str, TaskPlan], is_done: Callable[[TaskPlan], bool]
    ) -> None:
        self._sharing, self._tasks, self._is_done = sharing, tasks, is_done
        self._left: dict[str, TaskPlan] = {}
        self._helping = False
        self._looked, self._pause = -math.inf, LOOK

    @property
    def has_tasks(self) -> bool:
        """True while tasks are left to others."""
        return bool(self._left)

    @property
    def is_waited_for(self) -> bool:
        """True if the run waits for what others compute."""
        return self._sharing.waits

    def takes(self, task: TaskPlan) -> bool:
        """True if a task is this driver's now; else it is kept in mind."""
        if self._sharing.takes(task, self._tasks, self._is_done, helping=self._helping):
            return True
        self._left[task.name] = task
        return False

    def look(self) -> Look | None:
        """Look after the tasks that are left; None where that was done just now."""
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
        return Look(ended, free)

    def chunks(self) -> Iterator[Chunk]:
        """Chunks that are left to others."""
        return (chunk for task in self._left.values() for chunk in task.chunks)

    def __str__(self) -> str:
        drivers = ", ".join(map(str, self._sharing.claims.others())) or "drivers that have just ended"
        return f"{counted(len(self._left), 'task')} in work elsewhere: {drivers}"
