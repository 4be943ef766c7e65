"""Simulated run of a plan's tasks on some workers: when each would begin and end, and what would be idle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain

from pipeline.planning.chunk import Chunk
from pipeline.running.graph import ReadyTasks, TaskPlan

PerNode = Callable[[str, bool], float]
"""Seconds of a node's own part of a chunk; the flag says whether its stage runs for the first time there, or
of what is beside it, whether the chunk is the worker's first."""

LOOKED_AT = 16
"""Tasks that are ready, by priority, of which a worker takes one whose resident inputs are not elsewhere."""


@dataclass
class _Worker:
    """Names of stages that ran, kinds of devices that were used, and keys of results that stayed."""

    opened: set[int] = field(default_factory=set)
    stages: set[str] = field(default_factory=set)
    held: set[str] = field(default_factory=set)
    nbytes: int = 0


def schedule(
    tasks: Sequence[TaskPlan], workers: int, seconds: PerNode, overhead: PerNode
) -> tuple[float, int]:
    """List scheduling: a free worker takes the ready task of the highest priority.

    What a task needs and its worker does not hold is made there, as a run does. overhead: seconds of a chunk
    beside its stages (reading, committing).

    Returns:
        Seconds from the first task to the last, and bytes of results that stay on the worker with the most,
        as they are declared.
    """
    ready = ReadyTasks(tasks)
    team, homes = [_Worker() for _ in range(workers)], dict[str, int]()
    free = [(0.0, number) for number in range(workers)]
    ends: list[tuple[float, int]] = []
    wall = 0.0
    for _ in tasks:
        now, number = heappop(free)
        while not ready or (ends and ends[0][0] <= now):
            ended, done = heappop(ends)
            now = max(now, ended)
            ready.end(done)
        chosen = _choose(ready, tasks, homes, number)
        took = sum(_task_seconds(tasks[chosen], team[number], seconds, overhead))
        homes.update(dict.fromkeys(tasks[chosen].homes, number))
        heappush(free, (now + took, number))
        heappush(ends, (now + took, chosen))
        wall = max(wall, now + took)
    return wall, max(worker.nbytes for worker in team)


def _choose(ready: ReadyTasks, tasks: Sequence[TaskPlan], homes: dict[str, int], worker: int) -> int:
    """The first ready task that is at home here or nowhere; the very first if there is none."""
    passed: list[int] = []
    chosen = None
    while ready and chosen is None and len(passed) < LOOKED_AT:
        number = ready.pop()
        if all(homes.get(home, worker) == worker for home in tasks[number].homes):
            chosen = number
        else:
            passed.append(number)
    if chosen is None:
        chosen, *passed = passed
    ready.put(passed)
    return chosen


def _task_seconds(task: TaskPlan, worker: _Worker, seconds: PerNode, overhead: PerNode) -> Iterator[float]:
    shared: set[str] = set()
    for chunk in task.chunks:
        kind = chunk.node.stage.resources.device
        opening = kind not in worker.opened
        worker.opened.add(kind)
        for source in _made(chunk, worker, shared):
            yield _first_or_later(source, worker, seconds)
        yield _first_or_later(chunk, worker, seconds)
        yield overhead(chunk.node.name, opening)


def _first_or_later(chunk: Chunk, worker: _Worker, seconds: PerNode) -> float:
    stage = chunk.node.stage.name
    first = stage not in worker.stages
    worker.stages.add(stage)
    return seconds(chunk.node.name, first)


def _made(chunk: Chunk, worker: _Worker, shared: set[str]) -> Iterator[Chunk]:
    """Transient inputs that must be made for a chunk, inputs of inputs first."""
    for source in chain(*chunk.inputs):
        stage = source.node.stage
        if not stage.transient or source.key in worker.held or source.key in shared:
            continue
        yield from _made(source, worker, shared)
        yield source
        (worker.held if stage.resident else shared).add(source.key)
        worker.nbytes += source.node.cost.device_memory if stage.resident else 0
