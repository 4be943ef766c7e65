"""The Dask graph of what is missing: transient stages fused into their consumers, tiny chunks batched."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING, TypeVar

from pipeline.declare.coordinates import Coordinate, natural_order
from pipeline.declare.node import Node
from pipeline.planning.chunk import Chunk
from pipeline.planning.plan import Plan
from pipeline.worker.work import NodeWork, RunContext, Work

if TYPE_CHECKING:
    from dask.highlevelgraph import HighLevelGraph

SHORTEST_TASK = 0.1
"""Seconds: chunks that take less are batched into tasks of about this length."""

COMMIT = 0.005
"""Seconds that committing a chunk takes beside its computation, on a local disk."""

RETRIES = 1
"""At once, of a task that raises: faults of the infrastructure do, a stage's own exceptions are reported.
Later ones come after pauses (`retrying.PAUSES`)."""

DURATIONS = "distributed.scheduler.default-task-durations"
"""Dask's setting: what a task is expected to take, by the first words of its name."""

Element = TypeVar("Element", bound=Hashable)


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task: its chunks in order, the tasks it waits for, and what Dask is told about it."""

    name: str
    chunks: tuple[Chunk, ...]
    after: tuple[str, ...]
    homes: tuple[str, ...]
    """No-op tasks of the resident results that it uses, so that those who share one prefer one worker."""
    needs: dict[str, tuple[str, ...]]
    """Per chunk, the keys of the missing chunks that it reads."""
    priority: float
    device: int


def plan_tasks(plan: Plan) -> list[TaskPlan]:
    """The missing chunks grouped into tasks, upstream before downstream."""
    missing = {chunk.key for chunk in plan.missing}
    levels = _levels(plan)
    groups = _batched(_fused(plan.missing, levels), plan.expected_seconds)
    task_of = {chunk.key: _task_name(group) for group in groups for chunk in group}
    ranks, lengths = _ranks(plan), _lengths(plan)
    depth = max(levels.values(), default=0) + 1
    tasks = []
    for group in sorted(groups, key=lambda group: levels[group[0].node.name]):
        name = _task_name(group)
        sources = {chunk.key: {source.key: source for source in chunk.sources()} for chunk in group}
        needs = {key: tuple(missing.intersection(inputs)) for key, inputs in sources.items()}
        after = {task_of[key] for key in chain(*needs.values())} - {name}
        used = chain(*(inputs.values() for inputs in sources.values()))
        homes = {_home_name(source) for source in used if _has_home(source, missing)}
        rank = min(ranks[_first_coordinate(chunk)] for chunk in group)
        tasks.append(
            TaskPlan(
                name=name,
                chunks=tuple(group),
                after=tuple(sorted(after)),
                homes=tuple(sorted(homes)),
                needs=needs,
                priority=levels[group[0].node.name] - depth * rank + lengths[group[0].node.name],
                device=max(node.stage.resources.device for chunk in group for node in chunk.node.fused()),
            )
        )
    return tasks


class ReadyTasks:
    """Tasks that wait for no other one, by number, those of the highest priority first."""

    def __init__(self, tasks: Sequence[TaskPlan]) -> None:
        self._tasks = tasks
        self._below: dict[str, list[int]] = {}
        self._unmet: list[int] = []
        names = {task.name for task in tasks}
        for number, task in enumerate(tasks):
            above = [name for name in task.after if name in names]
            self._unmet.append(len(above))
            for name in above:
                self._below.setdefault(name, []).append(number)
        self._ready: list[tuple[float, int]] = []
        self.put(number for number in range(len(tasks)) if not self._unmet[number])

    def __len__(self) -> int:
        return len(self._ready)

    def pop(self) -> int:
        """Take the first."""
        return heappop(self._ready)[1]

    def put(self, numbers: Iterable[int]) -> None:
        """Put tasks among them."""
        for number in numbers:
            heappush(self._ready, (-self._tasks[number].priority, number))

    def end(self, number: int) -> None:
        """Note that a task has ended, or is sent: what waited for it alone is ready."""
        for each in self._below.pop(self._tasks[number].name, ()):
            self._unmet[each] -= 1
            if not self._unmet[each]:
                self.put([each])


def submission_order(tasks: Sequence[TaskPlan]) -> list[TaskPlan]:
    """Tasks by priority, but each after all those that it waits for: any first part can be sent alone."""
    ready, ordered = ReadyTasks(tasks), []
    while ready:
        number = ready.pop()
        ordered.append(tasks[number])
        ready.end(number)
    return ordered


def dask_graph(
    tasks: Sequence[TaskPlan],
    context: RunContext,
    lost: frozenset[str] = frozenset(),
    sent: frozenset[str] = frozenset(),
    attempt: str = "",
) -> HighLevelGraph:
    """The tasks as a graph, with resources, priorities and retries as annotations.

    `attempt` ends their names: a scheduler that still holds what a task of the same name returned would not
    run it again.

    What a task should wait for but is neither among `tasks` nor `sent`, names of tasks that the scheduler has
    already, has ended; `lost` are the keys of those chunks that failed.
    """
    from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
    from dask.task_spec import Task as DaskTask
    from dask.task_spec import TaskRef

    from pipeline.worker.task import affinity_anchor, execute

    present = {task.name for task in tasks} | sent
    works = _Works(context.backend)
    layer = {name: DaskTask(name, affinity_anchor) for task in tasks for name in task.homes}
    for task in tasks:
        above = [f"{name}{attempt}" for name in task.after if name in present]
        waits = map(TaskRef, (*above, *task.homes))
        computed = [works.to_compute(chunk) for chunk in task.chunks]
        name = f"{task.name}{attempt}"
        layer[name] = DaskTask(name, execute, computed, context, lost, *waits)
    annotations = {
        "priority": {f"{task.name}{attempt}": task.priority for task in tasks}.get,
        "retries": {f"{task.name}{attempt}": RETRIES for task in tasks}.get,
        "resources": {f"{t.name}{attempt}": {"device": t.device} for t in tasks if t.device}.get,
    }
    return HighLevelGraph({"chunks": MaterializedLayer(layer, annotations=annotations)}, {"chunks": set()})


def work_of(chunk: Chunk, backend: str) -> Work:
    """A chunk as it travels to a worker of a cluster with this backend."""
    return _Works(backend).to_compute(chunk)


def told_durations(tasks: Iterable[TaskPlan], seconds: Mapping[str, float]) -> AbstractContextManager[object]:
    """A block in which schedulers of this process know what tasks take before they have seen one.

    They move tasks to workers with less to do, and take half a second for what they do not know. Tasks that
    they count as one kind share a mean. What the user's settings say of a kind holds.

    Args:
        tasks: all that are to run.
        seconds: of a chunk, by node.
    """
    import dask
    from dask.utils import key_split

    taken: dict[str, list[float]] = {}
    for task in tasks:
        if (expected := _expected(task.chunks, seconds)) < math.inf:
            taken.setdefault(key_split(f"{task.chunks[0].node.name}-0"), []).append(expected)
    known = {kind: f"{fmean(values)}s" for kind, values in taken.items()}
    own = dask.config.get(DURATIONS, None)
    return dask.config.set({DURATIONS: {**known, **(own if isinstance(own, Mapping) else {})}})


def widest_level(tasks: Sequence[TaskPlan]) -> int:
    """Number of tasks that could at most run side by side."""
    level: dict[str, int] = {}
    for task in tasks:
        level[task.name] = 1 + max((level[name] for name in task.after), default=-1)
    counts = list(level.values())
    return max((counts.count(value) for value in set(counts)), default=0)


class _Works:
    """Chunks as what travels to workers. A transient chunk runs on the backend of its consumer."""

    def __init__(self, backend: str) -> None:
        self._cluster = backend
        self._nodes: dict[tuple[str, str], NodeWork] = {}
        self._transient: dict[tuple[str, str], Work] = {}

    def to_compute(self, chunk: Chunk, consumer: str = "cpu") -> Work:
        """`consumer`: backend of the task that a transient chunk is part of."""
        stage = chunk.node.stage
        backend = consumer if stage.transient and not stage.resources.device else stage.backend(self._cluster)
        inputs = tuple(tuple(self._input(source, backend) for source in sources) for sources in chunk.inputs)
        return Work(self._node(chunk.node, backend), chunk.coordinates, chunk.key, inputs, chunk.files)

    def _input(self, chunk: Chunk, consumer: str) -> Work:
        if not chunk.node.stage.transient:
            return Work(self._node(chunk.node, "cpu"), chunk.coordinates, chunk.key, None)
        if (chunk.key, consumer) not in self._transient:
            self._transient[chunk.key, consumer] = self.to_compute(chunk, consumer)
        return self._transient[chunk.key, consumer]

    def _node(self, node: Node, backend: str) -> NodeWork:
        if (node.name, backend) not in self._nodes:
            about = (node.name, node.stage.function, node.parameters, node.chunk, backend)
            self._nodes[node.name, backend] = NodeWork(*about, node.stage.version, node.cost)
        return self._nodes[node.name, backend]


def _levels(plan: Plan) -> dict[str, int]:
    """Depth of each node; a transient one has that of its inputs, for it adds no task."""
    levels: dict[str, int] = {}
    for node in dict.fromkeys(chunk.node for chunk in plan.everything):
        below = (levels[up.name] + (not up.stage.transient) for up in node.inputs)
        levels[node.name] = max(below, default=0)
    return levels


def _fused(missing: Sequence[Chunk], levels: Mapping[str, int]) -> list[list[Chunk]]:
    """Chunks of one level that share a transient result form one group.

    Chunks of one level never depend on each other, so that merging them makes no cycle. Resident results and
    those that are reduced over need no fusion.
    """
    pairs: list[tuple[str, str]] = []
    first: dict[tuple[int, str], str] = {}
    for chunk in missing:
        for source in _fused_inputs(chunk):
            other = first.setdefault((levels[chunk.node.name], source.key), chunk.key)
            if other != chunk.key:
                pairs.append((other, chunk.key))
    homes = united(pairs)
    groups: dict[str, list[Chunk]] = {}
    for chunk in missing:
        groups.setdefault(homes.get(chunk.key, chunk.key), []).append(chunk)
    return list(groups.values())


def united(groups: Iterable[Collection[Element]]) -> dict[Element, Element]:
    """Sets that groups of elements join to: by element, the one that stands for all of its set.

    Elements of a group are joined, and so are groups that share one.
    """
    homes: dict[Element, Element] = {}
    members: dict[Element, list[Element]] = {}
    for group in groups:
        for each in group:
            if each not in homes:
                homes[each], members[each] = each, [each]
        largest, *others = sorted({homes[each] for each in group}, key=lambda home: -len(members[home]))
        for other in others:
            homes.update(dict.fromkeys(members[other], largest))
            members[largest] += members.pop(other)
    return homes


def _batched(groups: Iterable[list[Chunk]], expected_seconds: Mapping[str, float]) -> list[list[Chunk]]:
    """Consecutive groups of a node joined until they take as long as a task should, if that is known."""
    batches: list[list[Chunk]] = []
    seconds_left = 0.0
    for group in groups:
        seconds = _expected(group, expected_seconds)
        if seconds_left > 0 and batches[-1][0].node is group[0].node and seconds < SHORTEST_TASK:
            batches[-1].extend(group)
            seconds_left -= seconds
        else:
            batches.append(list(group))
            seconds_left = SHORTEST_TASK - seconds
    return batches


def _expected(chunks: Iterable[Chunk], seconds: Mapping[str, float]) -> float:
    """Seconds of chunks and their commits, one after another; infinite where a node's are not known."""
    return sum(COMMIT + seconds.get(chunk.node.name, math.inf) for chunk in chunks)


def _fused_inputs(chunk: Chunk) -> Iterator[Chunk]:
    """Transient results of which consumers of one level should share one evaluation."""
    for (argument, _), sources in zip(chunk.node.arguments(), chunk.inputs, strict=True):
        for source in sources:
            stage = source.node.stage
            if stage.transient and not stage.resident and not argument.reduces:
                yield source
                yield from _fused_inputs(source)


def _has_home(chunk: Chunk, missing: set[str]) -> bool:
    """A resident result that no task of this run commits: nothing else tells Dask who shares it."""
    return chunk.node.stage.resident and chunk.key not in missing


def _home_name(chunk: Chunk) -> str:
    return f"home-{chunk.key[:16]}"


def _task_name(group: Sequence[Chunk]) -> str:
    return f"{group[0].node.name}-{group[0].key[:16]}"


def _first_coordinate(chunk: Chunk) -> Coordinate | None:
    over = chunk.node.stage.over
    return chunk.coordinates[over[0]][0] if over else None


def _lengths(plan: Plan) -> dict[str, float]:
    """Part of a priority, below 1, that has the longest chunks of a configuration begin first.

    What is left when workers run out of work are short ones then, and few wait long for the last. By measured
    seconds where all nodes have some, else by the bytes that their passes move.
    """
    nodes = {chunk.node.name: chunk.node for chunk in plan.missing}
    seconds = plan.expected_seconds
    if not nodes.keys() <= seconds.keys():
        seconds = {
            name: sum(each.count * each.nbytes for part in node.fused() for each in part.cost.work)
            for name, node in nodes.items()
        }
    order = sorted({seconds[name] for name in nodes})
    return {name: order.index(seconds[name]) / len(order) for name in nodes}


def _ranks(plan: Plan) -> dict[Coordinate | None, int]:
    """Order in which to work through first dimensions (configurations), so that results come early."""
    values = {value for chunk in plan.missing if (value := _first_coordinate(chunk)) is not None}
    return {None: 0, **{value: rank for rank, value in enumerate(sorted(values, key=natural_order))}}
