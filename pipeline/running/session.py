"""Driving one run on an open cluster: submit, listen, survive lost workers, stop when asked."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from queue import Empty, SimpleQueue
from secrets import token_hex
from typing import Any

from distributed import Client, Future, KilledWorker
from distributed.client import ClosedClientError

from pipeline.declare.coordinates import describe
from pipeline.declare.duration import duration_text
from pipeline.declare.text import counted, format_bytes
from pipeline.planning.chunk import Chunk
from pipeline.running.chunk_states import ChunkStates
from pipeline.running.event_log import EventLog
from pipeline.running.failures import Failure
from pipeline.running.graph import TaskPlan, dask_graph, submission_order
from pipeline.running.quarantine import Quarantine
from pipeline.running.retrying import Retrying, described
from pipeline.running.sharing import Elsewhere, Sharing
from pipeline.running.stopping import StopRequest
from pipeline.running.workforce import Workforce
from pipeline.store.record import Record
from pipeline.worker.events import ENDED, OTHER_CODE, ChunkState, Event, EventKind
from pipeline.worker.work import RunContext
from stages.base.errors import InputError

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
        self.ends = ChunkStates(context.store, log)
        self._retries = Retrying(log)
        self._elsewhere = sharing(self._tasks, self.ends.is_done) if sharing else None
        self._chunks = {chunk.key: (task, chunk) for task in tasks for chunk in task.chunks}
        self._inbox: SimpleQueue[Event | Future] = SimpleQueue()
        self._attempt = ""
        """The end of the names of tasks that are sent in this pass."""
        self._above: dict[str, list[Future]] = {}
        """Per task that was sent, the tasks that it waits for and that were sent before it."""
        self._next: set[str] = set()
        """Tasks that were cancelled in this pass, or met an error that may pass: they run in the next one."""
        self._too_large: set[str] = set()
        """Nodes whose results no worker keeps, as was said already."""
        self._looked = time.monotonic()
        """When the workers were last looked after."""
        client.subscribe_topic(context.topic, lambda message: self._take(message[1]))

    def drive(self) -> None:
        """Run all tasks to their end, in passes: a chunk whose workers died too often runs again, alone."""
        try:
            unfinished = list(self._tasks)
            while unfinished and not self._stop.check():
                suspects = self._pass(unfinished)
                for name in self._first_of(suspects):
                    self._try_alone(name)
                left = {*suspects, *self._next}
                self._next.clear()
                unfinished = [name for name in unfinished if name in left]
                self._block_after_failures(unfinished)
                unfinished = [name for name in unfinished if not self.ends.has_ended(self._tasks[name])]
                if not unfinished and self._elsewhere:
                    unfinished = self._from_elsewhere(self._elsewhere)
                self._pause(unfinished)
        finally:
            with suppress(ClosedClientError):  # the scheduler complains of events that nobody takes any more
                self._client.unsubscribe_topic(self._context.topic)

    def _try_alone(self, name: str) -> None:
        """Run a task without neighbours that may have taken the memory; it fails by its own deaths alone.

        Dask blames a task for the end of every worker that it was assigned to, begun or not: unless workers
        were seen to die with one of its chunks under their hands, it gets another trial.
        """
        task = self._tasks[name]
        self.ends.deaths.clear()
        with self._workforce.memory_for_one():
            for _ in range(TRIALS):
                if self._stop.check() or not self._pass([name]):
                    return
                if deadly := self._deadly(task):
                    self.ends.fail(deadly, DIED)
                    return
        self.ends.fail(task.chunks, DIED)

    def _deadly(self, task: TaskPlan) -> list[Chunk]:
        limit = self._workforce.limits.deaths
        return [c for c in task.chunks if c.key not in self.ends and self.ends.deaths[c.key] >= limit]

    def _pause(self, names: Sequence[str]) -> None:
        """Wait until something of a pass may be tried again, with an eye on the workers."""
        while (left := self._retries.seconds_left(names)) and not self._stop.check():
            self._workforce.say(f"what met an error that may pass is tried again in {duration_text(left)}")
            self._handle_next({}, {})
            if time.monotonic() - self._looked >= INTERVAL:
                self._look({})

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
        free: list[str] = []
        while elsewhere.has_tasks and not self._stop.check():
            if look := elsewhere.look():
                ended, free = look
                for chunk in chain.from_iterable(task.chunks for task in ended):
                    self.ends.set(chunk.key, ChunkState.PRESENT)
                if free or not elsewhere.waits:
                    break
            self._workforce.say(f"{elsewhere}")
            self._handle_next({}, {})
        if free:
            return free
        for chunk in elsewhere.chunks():
            self.ends.set(chunk.key, ChunkState.ELSEWHERE)
        return []

    def _submit(
        self, wave: Sequence[TaskPlan], running: dict[str, Future], errors: dict[str, BaseException]
    ) -> None:
        """Send one piece of a pass's graph; what waits for a task that raised shares its error, unsent."""
        sent: dict[str, TaskPlan] = {}
        for task in wave:
            if task.name in self._next:
                continue
            cause = next((errors[above] for above in task.after if above in errors), None)
            if cause is None:
                sent[task.name] = task
            else:
                errors[task.name] = cause
        if not sent:
            return
        tasks, attempt = list(sent.values()), self._attempt
        graph = dask_graph(tasks, self._context, self.ends.lacking, frozenset(running), attempt)
        futures = self._client.get(graph, [f"{name}{attempt}" for name in sent], sync=False)
        for task, future in zip(sent.values(), futures, strict=True):
            # The scheduler forgets what no future asks for: those above live as long as who waits for them.
            self._above[task.name] = [running[above] for above in task.after if above in running]
            future.add_done_callback(self._inbox.put)
        running.update(zip(sent, futures, strict=True))

    def _wind_down(self, running: dict[str, Future], errors: dict[str, BaseException]) -> None:
        """Give up what has not begun; wait, within limits, for what has or begins in this instant."""
        self._log(Event(EventKind.STOPPING, reason=self._stop.reason))
        idle = [name for name in running if not self._has_begun(self._tasks[name])]
        self._client.cancel([running.pop(name) for name in idle])
        heard = True
        while (heard or running or self._in_flight()) and not self._stop.patience_is_over():
            heard = self._handle_next(running, errors)

    def _look(self, running: dict[str, Future]) -> None:
        """Count the dead, end what makes no progress, and say what is waited for."""
        self._looked = time.monotonic()
        died = self._workforce.look(self.ends.in_work)
        if died and (edit := self._context.sources.edit()):
            self.refuse(edit)
        for lost in self.ends.lost(died):
            _, chunk = self._chunks[lost.key]
            text = f"the worker died that computed {chunk.node.name} {describe(chunk.coordinates)}"
            self._log(Event(EventKind.NOTE, message=text, key=lost.key, worker=lost.worker))
        for work in self.ends.silent():
            task, chunk = self._chunks[work.key]
            forecast = self._forecast.get(chunk.node.name, 0.0)
            if work.silence > self._workforce.limits.of_chunk(forecast, work.told):
                error = f"no progress for {duration_text(work.silence)}: it was ended with its worker"
                self._end(task, chunk, work.worker, error, running)
        self._say_silence()

    def _say_silence(self) -> None:
        silent = self.ends.silent()
        if silent and silent[0].silence >= self._workforce.limits.saying:
            _, chunk = self._chunks[silent[0].key]
            which = f"{chunk.node.name} {describe(chunk.coordinates)}"
            self._workforce.say(
                f"{self._workforce}, {counted(len(silent), 'chunk')} running; "
                f"no progress for {duration_text(silent[0].silence)}: {which}"
            )

    def _end(self, task: TaskPlan, chunk: Chunk, worker: str, error: str, running: dict[str, Future]) -> None:
        """End a chunk with its worker. What shares its task or needs it goes on, in the next pass."""
        del self.ends.in_work[worker]
        self.ends.fail([chunk], error)
        names = {task.name}
        for other in self._tasks.values():  # upstream before downstream
            if names.intersection(other.after):
                names.add(other.name)
        self._next |= names
        given_up = [running.pop(name) for name in names if name in running]
        self._client.cancel(given_up, force=True)
        self._workforce.replace(worker)

    def _in_flight(self) -> bool:
        return any(key not in self.ends for key in self.ends.started)

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
            self.ends.confirm(self._tasks[name])
        elif message.status == "error":
            errors[name] = message.exception()
        else:
            self._stop.ask("loss of the scheduler", grace=0.0)

    def _take(self, message: dict[str, Any]) -> None:
        """Take a worker's message; what is no event, as one of other code may send, says nothing."""
        with suppress(ValueError):
            self._inbox.put(Event.of({"time": time.time(), **message}))

    def _handle_event(self, event: Event) -> None:
        if event.kind == EventKind.REFUSED:
            self.refuse(event.error)
            return
        kind, key = event.kind, event.key
        if kind == EventKind.NOT_KEPT:
            self._warn(event)
            return
        if kind == ChunkState.PRESENT and key not in self.ends:
            event = self._by_whom(event)
            kind = event.kind
        if self.ends.hear(event, known=key in self._chunks):
            self._workforce.note_work()
        if kind == EventKind.DISAGREED:
            self._quarantine.disagreed(event)
        elif kind == ChunkState.DONE:
            self._quarantine.committed(event)
        elif event.distrusted:
            self._quarantine.dropped(key)
        if kind in ENDED and key not in self.ends:
            self.ends.end(event)
            self._stop.note_duration(self.ends.seconds(event))
            if event.fatal:
                self._stop.ask(event.fatal, grace=0.0)
        self._log(event)

    def _by_whom(self, event: Event) -> Event:
        """The end of a chunk that was there: done, if a worker of this run that was lost had committed it."""
        with suppress(InputError):
            record = Record.of(self._context.store.record(event.stage, event.key))
            if record.run == self._context.run:
                repeated = bool(record.checks.get("repeated"))
                return replace(event, kind=ChunkState.DONE, joules=record.joules, repeated=repeated)
        return event

    def refuse(self, error: str) -> None:
        """End the run for a worker of other code; several of them are one refusal."""
        if not self._stop.reason:
            self.ends.failures.append(Failure("workers", {}, error))
            self._stop.ask(OTHER_CODE, grace=0.0)

    def _warn(self, event: Event) -> None:
        """Once in a run and for each node: its resident results are made again by every task."""
        if event.node not in self._too_large:
            self._too_large.add(event.node)
            self._log(replace(event, message=_too_large(event.node, event.bytes, event.limit)))

    def _classify_errors(self, names: Sequence[str], errors: dict[str, BaseException]) -> list[str]:
        """Tasks that raised: those after another one are no cause; others failed, wait, or lost workers."""
        suspects: list[str] = []
        for name in (name for name in names if name in errors):
            task, error = self._tasks[name], errors[name]
            if isinstance(error, KilledWorker) or any(above in suspects for above in task.after):
                suspects.append(name)
                self._workforce.note_work()  # its workers did not die in vain: it will run alone, or fail
            elif self._next.intersection(task.after):
                self._next.add(name)
            elif not any(above in errors for above in task.after):
                if self._retries.take(task, error, stopping=self._stop.check()):
                    self._next.add(name)
                else:
                    self.ends.fail(task.chunks, described(error))
        self._block_after_failures(names)
        return [name for name in suspects if not self.ends.has_ended(self._tasks[name])]

    def _first_of(self, suspects: Sequence[str]) -> list[str]:
        return [name for name in suspects if not any(above in suspects for above in self._tasks[name].after)]

    def _block_after_failures(self, names: Iterable[str]) -> None:
        self.ends.block_after_failures([self._tasks[name] for name in names])

    def _has_begun(self, task: TaskPlan) -> bool:
        return any(chunk.key in self.ends.started for chunk in task.chunks)


def _too_large(node: str, nbytes: int, limit: int) -> str:
    return (
        f"a result of {node!r} has {format_bytes(nbytes)}, but a worker keeps at most {format_bytes(limit)} "
        "of resident results: every task makes it again; take fewer workers (`--workers`), or workers with "
        "more memory"
    )
