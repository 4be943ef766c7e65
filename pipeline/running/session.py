"""Driving one run on an open cluster: submit, listen, survive lost workers, stop when asked."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from queue import Empty, SimpleQueue
from secrets import token_hex

from dask.utils import format_bytes, format_time
from distributed import Client, Future, KilledWorker
from distributed.client import ClosedClientError

from pipeline.declare.coordinates import describe
from pipeline.declare.text import counted
from pipeline.planning.chunk import Chunk
from pipeline.running.event_log import Event, EventLog
from pipeline.running.failures import Failure
from pipeline.running.graph import TaskPlan, dask_graph, submission_order
from pipeline.running.quarantine import Quarantine
from pipeline.running.sharing import Elsewhere, Sharing
from pipeline.running.stopping import StopRequest
from pipeline.running.workforce import Workforce
from pipeline.worker.events import ENDED, LOST, OTHER_CODE, ChunkState, EventKind, chunk_identity
from pipeline.worker.work import RunContext

DIED = "its worker died every time, perhaps out of memory"

TRIALS = 2
"""Of a task that runs alone and loses its workers, before it is blamed for deaths that nobody saw."""

TICK = 0.2
"""Seconds between two looks at signals and the clock when nothing happens."""

UNDONE = ("lost", "pending")
"""States of a task that had ended, whose worker died with what it returned: Dask runs it again."""

ATTEMPT = "~"
"""What stands between a task's name and that of the pass it is sent in."""

INTERVAL = 2.0
"""Seconds between two looks at the workers and at what they compute."""

OUTSTANDING = 20_000
"""Tasks of which the scheduler knows at a time; each takes it and this process about 10 kB."""

WAVE = 5_000
"""Tasks that are sent together once so many of those have ended."""

QUEUED = 2
"""Tasks for each worker of a driver that shares the store: what it has claimed no other computes."""

HERE = (ChunkState.DONE, ChunkState.PRESENT)
"""States of a chunk that is in the store."""


class Session:
    """The state of a run in its driver."""

    def __init__(
        self,
        client: Client,
        tasks: Sequence[TaskPlan],
        context: RunContext,
        log: EventLog,
        stop: StopRequest,
        workforce: Workforce,
        forecast: Mapping[str, float],
        quarantine: Quarantine,
        sharing: Sharing | None = None,
    ) -> None:
        self._client = client
        self._tasks = {task.name: task for task in tasks}
        self._context = context
        self._log = log
        self._stop = stop
        self._workforce = workforce
        self._forecast = forecast
        """Expected seconds of a chunk, by node."""
        self._quarantine = quarantine
        self._elsewhere = Elsewhere(sharing, self._tasks, self._is_done) if sharing else None
        self._chunks = {chunk.key: (task, chunk) for task in tasks for chunk in task.chunks}
        self._inbox: SimpleQueue[Event | Future] = SimpleQueue()
        self._started: dict[str, float] = {}
        self._attempt = ""
        """The end of the names of tasks that are sent in this pass."""
        self._above: dict[str, list[Future]] = {}
        """Per task that was sent, the tasks that it waits for and that were sent before it."""
        self._at_work: dict[str, str] = {}
        """The chunk that each worker computes, by the worker's address."""
        self._heard: dict[str, tuple[float, bool]] = {}
        """Per chunk in work, the time of the last news of it by our clock, and if it told its progress."""
        self._deaths: Counter[str] = Counter()
        """Workers that died while they computed a chunk, since a task began to run alone."""
        self._given_up: set[str] = set()
        """Tasks that were cancelled in this pass, to run in the next one."""
        self._too_large: set[str] = set()
        """Nodes whose results no worker keeps, as was said already."""
        self._looked = time.monotonic()
        """When the workers were last looked after."""
        self._lost: set[str] = set()
        """Chunks whose result is missing for those who need it."""
        self.states: dict[str, ChunkState] = {}
        self.failures: list[Failure] = []
        self.damaged: set[tuple[str, str]] = set()
        """Stage and key of stored chunks that tasks found damaged."""
        client.subscribe_topic(context.topic, lambda event: self._inbox.put(event[1]))

    def drive(self) -> None:
        """Run all tasks to their end, in passes: a chunk whose workers died too often runs again, alone."""
        try:
            unfinished = list(self._tasks)
            while unfinished and not self._stop.check():
                suspects = self._pass(unfinished)
                for name in self._first_of(suspects):
                    self._try_alone(name)
                left = {*suspects, *self._given_up}
                self._given_up.clear()
                unfinished = [name for name in unfinished if name in left]
                self._block_after_failures(unfinished)
                unfinished = [name for name in unfinished if not self._has_ended(self._tasks[name])]
                if not unfinished and self._elsewhere:
                    unfinished = self._from_elsewhere(self._elsewhere)
        finally:
            with suppress(ClosedClientError):  # the scheduler complains of events that nobody takes any more
                self._client.unsubscribe_topic(self._context.topic)

    def _try_alone(self, name: str) -> None:
        """Run a task without neighbours that may have taken the memory; it fails by its own deaths alone.

        Dask blames a task for the end of every worker that it was assigned to, begun or not: unless workers
        were seen to die with one of its chunks under their hands, it gets another trial.
        """
        task = self._tasks[name]
        self._deaths.clear()
        for _ in range(TRIALS):
            if self._stop.check() or not self._pass([name]):
                return
            if deadly := self._deadly(task):
                for chunk in deadly:
                    self._fail_chunk(chunk, DIED)
                return
        self._fail(task, DIED)

    def _deadly(self, task: TaskPlan) -> list[Chunk]:
        limit = self._workforce.limits.deaths
        return [c for c in task.chunks if c.key not in self.states and self._deaths[c.key] >= limit]

    def _pass(self, names: Sequence[str]) -> list[str]:
        """Submit tasks and wait for them; returns those that lost their workers too often, in order."""
        self._attempt = f"{ATTEMPT}{token_hex(4)}"
        tasks = [self._tasks[name] for name in names]
        waiting = deque(submission_order(tasks) if len(tasks) > OUTSTANDING else tasks)
        running: dict[str, Future] = {}
        errors: dict[str, BaseException] = {}
        while (running or waiting) and not self._stop.check():
            if waiting and (room := self._room(len(running))):
                self._submit(self._wave(waiting, room), running, errors)
            elif running:
                self._handle_next(running, errors)
                if time.monotonic() - self._looked >= INTERVAL:
                    self._look(running)
        if errors:
            self._look(running)
        if self._stop.check():
            self._wind_down(running, errors)
        return self._classify_errors(names, errors)

    def _room(self, running: int) -> int:
        """How many tasks to send now: many at a time, or what keeps the workers busy where others claim."""
        if self._elsewhere:
            return max(0, QUEUED * max(1, self._workforce.count) - running)
        return OUTSTANDING - running if running <= OUTSTANDING - WAVE else 0

    def _wave(self, waiting: deque[TaskPlan], room: int) -> list[TaskPlan]:
        """The next tasks to send, at most `room`; those of other drivers are left to them."""
        wave: list[TaskPlan] = []
        while waiting and len(wave) < room:
            task = waiting.popleft()
            if not self._elsewhere or self._elsewhere.takes(task):
                wave.append(task)
        return wave

    def _from_elsewhere(self, elsewhere: Elsewhere) -> list[str]:
        """What other drivers leave to this one; waits for that, if it should."""
        look = None
        while elsewhere.has_tasks and not self._stop.check():
            if look := elsewhere.look():
                for chunk in chain.from_iterable(task.chunks for task in look.ended):
                    self._set_state(chunk.key, ChunkState.PRESENT)
                if look.free or not elsewhere.is_waited_for:
                    break
            self._workforce.say(f"{elsewhere}")
            self._handle_next({}, {})
        if look and look.free:
            return look.free
        for chunk in elsewhere.chunks():
            self._set_state(chunk.key, ChunkState.ELSEWHERE)
        return []

    def _is_done(self, task: TaskPlan) -> bool:
        store = self._context.store
        return all(
            self.states.get(chunk.key) in HERE or store.has(chunk.node.stage.name, chunk.key)
            for chunk in task.chunks
        )

    def _submit(
        self, wave: Sequence[TaskPlan], running: dict[str, Future], errors: dict[str, BaseException]
    ) -> None:
        """Send one piece of a pass's graph; what waits for a task that raised shares its error, unsent."""
        sent: dict[str, TaskPlan] = {}
        for task in wave:
            if task.name in self._given_up:
                continue
            cause = next((errors[above] for above in task.after if above in errors), None)
            if cause is None:
                sent[task.name] = task
            else:
                errors[task.name] = cause
        if not sent:
            return
        tasks, attempt = list(sent.values()), self._attempt
        graph = dask_graph(tasks, self._context, frozenset(self._lost), frozenset(running), attempt)
        futures = self._client.get(graph, [f"{name}{attempt}" for name in sent], sync=False)
        for task, future in zip(sent.values(), futures, strict=True):
            # The scheduler forgets what no future asks for: those above live as long as who waits for them.
            self._above[task.name] = [running[above] for above in task.after if above in running]
            future.add_done_callback(self._inbox.put)
        running.update(zip(sent, futures, strict=True))

    def _wind_down(self, running: dict[str, Future], errors: dict[str, BaseException]) -> None:
        """Give up what has not begun; wait, within limits, for what has or begins in this instant."""
        self._log.note(EventKind.STOPPING, reason=self._stop.reason)
        idle = [name for name in running if not self._has_begun(self._tasks[name])]
        self._client.cancel([running.pop(name) for name in idle])
        heard = True
        while (heard or running or self._in_flight()) and not self._stop.patience_is_over():
            heard = self._handle_next(running, errors)

    def _look(self, running: dict[str, Future]) -> None:
        """Count the dead, end what makes no progress, and say what is waited for."""
        self._looked = time.monotonic()
        for worker in self._workforce.look(self._at_work):
            if key := self._at_work.pop(worker, ""):
                self._deaths[key] += 1
                _, chunk = self._chunks[key]
                text = f"the worker died that computed {chunk.node.name} {describe(chunk.coordinates)}"
                self._log.note(EventKind.NOTE, message=text, key=key, worker=worker)
        moment = time.monotonic()
        for worker, key in list(self._at_work.items()):
            heard, told = self._heard[key]
            task, chunk = self._chunks[key]
            silent = moment - heard
            limit = self._workforce.limits.of_chunk(self._forecast.get(chunk.node.name, 0.0), told)
            if silent > limit:
                error = f"no progress for {format_time(silent)}: it was ended with its worker"
                self._end(task, chunk, worker, error, running)
        self._say_silence(moment)

    def _say_silence(self, moment: float) -> None:
        if not self._at_work:
            return
        key = min(self._at_work.values(), key=lambda key: self._heard[key][0])
        silent, (_, chunk) = moment - self._heard[key][0], self._chunks[key]
        if silent >= self._workforce.limits.saying:
            which = f"{chunk.node.name} {describe(chunk.coordinates)}"
            self._workforce.say(
                f"{self._workforce}, {counted(len(self._at_work), 'chunk')} in work; "
                f"the longest without news, for {format_time(silent)}: {which}"
            )

    def _end(self, task: TaskPlan, chunk: Chunk, worker: str, error: str, running: dict[str, Future]) -> None:
        """End a chunk with its worker. What shares its task or needs it goes on, in the next pass."""
        del self._at_work[worker]
        self._fail_chunk(chunk, error)
        names = {task.name}
        for other in self._tasks.values():  # upstream before downstream
            if names.intersection(other.after):
                names.add(other.name)
        self._given_up |= names
        given_up = [running.pop(name) for name in names if name in running]
        self._client.cancel(given_up, force=True)
        self._workforce.replace(worker)

    def _in_flight(self) -> bool:
        return any(key not in self.states for key in self._started)

    def _handle_next(self, running: dict[str, Future], errors: dict[str, BaseException]) -> bool:
        """Handle the next message; False if none comes within a tick."""
        try:
            message = self._inbox.get(timeout=TICK)
        except Empty:
            return False
        if not isinstance(message, Future):
            self._handle_event(message)
        else:
            self._finish_task(message, running, errors)
        return True

    def _finish_task(
        self, message: Future, running: dict[str, Future], errors: dict[str, BaseException]
    ) -> None:
        """A task came to its end, of whatever kind."""
        name = message.key.rpartition(ATTEMPT)[0]
        if name not in running or running[name].key != message.key:
            return
        if message.status in UNDONE:
            message.add_done_callback(self._inbox.put)
            return
        del running[name]
        self._above.pop(name, None)
        if message.status == "finished":
            self._confirm(self._tasks[name])
        elif message.status == "error":
            errors[name] = message.exception()
        else:
            self._stop.ask("loss of the scheduler", grace=0.0)

    def _handle_event(self, event: Event) -> None:
        if event["event"] == EventKind.REFUSED:
            self.refuse(event["error"])
            return
        kind, key = event["event"], event["key"]
        if kind == EventKind.NOT_KEPT:
            self._warn(event)
            return
        self._note_work(kind, key, event)
        if kind == EventKind.DISAGREED:
            self._quarantine.disagreed(event)
        elif kind == ChunkState.DONE:
            self._quarantine.committed(event)
        elif event.get("distrusted"):
            self._quarantine.dropped(key)
        if kind in ENDED and key not in self.states:
            self._set_state(key, ChunkState(kind))
            self._stop.note_duration(event["time"] - self._started.get(key, event["time"]))
            if kind == ChunkState.FAILED:
                self.failures.append(Failure(event["node"], event["coordinates"], event["error"]))
            if event.get("damaged"):
                stage, damaged_key = event["damaged"]
                self.damaged.add((stage, damaged_key))
            if event.get("fatal"):
                self._stop.ask(event["fatal"], grace=0.0)
        self._log(event)

    def refuse(self, error: str) -> None:
        """End the run for a worker of other code; several of them are one refusal."""
        if not self._stop.reason:
            self.failures.append(Failure("workers", {}, error))
            self._stop.ask(OTHER_CODE, grace=0.0)

    def _note_work(self, kind: str, key: str, event: Event) -> None:
        """Note what a worker computes, and that it gave news: of its chunk, or of what the chunk needs."""
        worker, now = event["worker"], time.monotonic()
        if kind == EventKind.STARTED and key in self._chunks:
            self._started[key] = event["time"]
            self._at_work[worker] = key
            self._heard[key] = (now, False)
            self._workforce.note_work()
        elif current := self._at_work.get(worker):
            self._heard[current] = (now, self._heard[current][1] or kind == EventKind.PROGRESS)
        if kind in ENDED and self._at_work.get(worker) == key:
            del self._at_work[worker]
            self._workforce.note_work()

    def _warn(self, event: Event) -> None:
        """Once in a run and for each node: its resident results are made again by every task."""
        node = event["node"]
        if node not in self._too_large:
            self._too_large.add(node)
            self._log({**event, "message": _too_large(node, event["bytes"], event["limit"])})

    def _confirm(self, task: TaskPlan) -> None:
        """A task that returned has reported its chunks, unless its worker died just then: ask the store."""
        for chunk in task.chunks:
            if chunk.key not in self.states and self._context.store.has(chunk.node.stage.name, chunk.key):
                self._set_state(chunk.key, ChunkState.DONE)

    def _classify_errors(self, names: Sequence[str], errors: dict[str, BaseException]) -> list[str]:
        """Tasks that raised: those after another one are no cause; the rest failed, or lost their workers."""
        suspects: list[str] = []
        for name in (name for name in names if name in errors):
            task, error = self._tasks[name], errors[name]
            if isinstance(error, KilledWorker) or any(above in suspects for above in task.after):
                suspects.append(name)
                self._workforce.note_work()  # its workers did not die in vain: it will run alone, or fail
            elif not any(above in errors for above in task.after):
                self._fail(task, f"{type(error).__name__}: {error}")
        self._block_after_failures(names)
        return [name for name in suspects if not self._has_ended(self._tasks[name])]

    def _first_of(self, suspects: Sequence[str]) -> list[str]:
        return [name for name in suspects if not any(above in suspects for above in self._tasks[name].after)]

    def _fail(self, task: TaskPlan, error: str) -> None:
        for chunk in task.chunks:
            if chunk.key not in self.states:
                self._fail_chunk(chunk, error)

    def _fail_chunk(self, chunk: Chunk, error: str) -> None:
        self._record_state(chunk, ChunkState.FAILED, error)
        self.failures.append(Failure(chunk.node.name, chunk.coordinates, error))

    def _block_after_failures(self, names: Iterable[str]) -> None:
        """Chunks that cannot run because an input failed."""
        for task in (self._tasks[name] for name in names):
            for chunk in task.chunks:
                if chunk.key not in self.states and self._lost.intersection(task.needs[chunk.key]):
                    self._record_state(chunk, ChunkState.BLOCKED, "an input failed")

    def _set_state(self, key: str, state: ChunkState) -> None:
        self.states[key] = state
        if state in LOST:
            self._lost.add(key)

    def _has_ended(self, task: TaskPlan) -> bool:
        return all(chunk.key in self.states for chunk in task.chunks)

    def _has_begun(self, task: TaskPlan) -> bool:
        return any(chunk.key in self._started for chunk in task.chunks)

    def _record_state(self, chunk: Chunk, state: ChunkState, error: str) -> None:
        self._set_state(chunk.key, state)
        about = chunk_identity(chunk.node.name, chunk.node.stage.name, chunk.key, chunk.coordinates)
        self._log.note(state, **about, error=error)


def _too_large(node: str, nbytes: int, limit: int) -> str:
    return (
        f"a result of {node!r} has {format_bytes(nbytes)}, but a worker keeps at most {format_bytes(limit)} "
        "of resident results: every task makes it again; take fewer workers (`--workers`), workers with more "
        "memory, or a larger `resident_bytes` of `pipeline.run`"
    )
