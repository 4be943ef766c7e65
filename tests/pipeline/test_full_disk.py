"""A full disk: one clear error, and nothing that was committed is lost."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import toy_stages as toys

from pipeline import InputError, Place, Workflow, collect_garbage, plan, run, status
from pipeline.running.clusters.local import Local
from pipeline.running.event_log import EventLog, read_events
from pipeline.worker.events import Event


def test_a_full_disk_ends_the_run_with_one_clear_error(store, log_path, executed):
    w = Workflow("filling")
    w.add(toys.filling, place=Place(over={"config": list("abcdef")}))
    outcome = run(plan(w, store), store, cluster=Local(workers=1))
    assert outcome.exit_status == 1
    assert outcome.states["filling"] == {"failed": 1, "unfinished": 5}
    assert len(outcome.failures) == 1
    assert "make room and run the same command again" in outcome.failures[0].error
    assert "stopped by an error of the store" in outcome.table()
    assert not list(store.temporary.iterdir())
    assert status(store).driver is None


@contextmanager
def no_room_beyond(size: int) -> Iterator[None]:
    """The limit on file sizes stops every write there, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_only_informs_needs_no_room_and_a_run_without_is_one_clear_error(store, tmp_path):
    """Digests of files, the name of the driver and events are left out; plans are made, garbage collected."""
    path = tmp_path / "numbers.txt"
    path.write_text("1.5")
    os.utime(path, (1e9, 1e9))
    w = Workflow("reading")
    w.add(toys.field, place=Place(over={"config": ["a"]}, files={"path": {"a": path}}))
    store.create()
    with no_room_beyond(0):
        assert len(plan(w, store).missing) == 1
        assert collect_garbage(store, [w]).kept == 0

    w = Workflow("crowded")
    w.add(toys.field, place=Place(over={"config": list("ab")}), scale=1.0)
    store.create()
    with no_room_beyond(0), pytest.raises(InputError, match="make room and run the same command again"):
        run(plan(w, store), store, cluster=Local(workers=1))

    store.create()
    with EventLog(store, "crowded") as log:
        log(Event("first", 1.0))
        with no_room_beyond(40):
            log(Event("torn in the middle", 2.0))
            log(Event("lost", 3.0))
        log(Event("last", 4.0))
    assert [event.kind for event in read_events(store, "crowded")] == ["first", "last"]
