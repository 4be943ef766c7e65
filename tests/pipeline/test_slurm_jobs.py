"""Jobs of Slurm, whose commands keep a queue in a folder here: cancelled, left behind, found again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import toy_stages as toys

from pipeline import Place, Store, Workflow, plan, run, status
from pipeline.running.clusters import Demand
from pipeline.running.clusters.jobqueue import JobQueue
from pipeline.running.clusters.jobs import JobList, cancel_left_jobs, job_lists
from pipeline.running.clusters.section import ClusterSection, Workers
from pipeline.running.event_log import read_events
from pipeline.running.limits import LIMITS, Limits
from stages.base.errors import InputError

COMMANDS = {
    "sbatch": """#!/bin/sh
name=$(sed -n 's/^#SBATCH -J //p' "$1")
id=1; while ! mkdir {folder}/submitted.$id 2> /dev/null; do id=$((id + 1)); done
cp "$1" {folder}/script.$id
echo "$name" > {folder}/queued.$id
echo "Submitted batch job $id"
""",
    "squeue": """#!/bin/sh
echo "$@" > {folder}/asked
for file in {folder}/queued.*; do
    [ -f "$file" ] || continue
    id=${{file##*.}}; echo "$id|$id|$id|RUNNING|$(cat $file)"
done
""",
    "scancel": """#!/bin/sh
for id in "$@"; do echo $id >> {folder}/cancelled; rm -f {folder}/queued.$id; done
""",
}


SITE = ClusterSection(kind="slurm", cores=1, memory="4GB", walltime="1h", workers=Workers(min=2, max=2))


class Queue:
    """Jobs that wait for ever."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, job: int, name: str) -> None:
        (self._folder / f"queued.{job}").write_text(name + "\n")

    def drop(self) -> None:
        """As an administrator does, with all that is queued."""
        for file in self._folder.glob("queued.*"):
            file.unlink()

    @property
    def jobs(self) -> dict[int, str]:
        return {int(file.suffix[1:]): file.read_text().strip() for file in self._folder.glob("queued.*")}

    @property
    def submitted(self) -> int:
        return len(list(self._folder.glob("submitted.*")))

    @property
    def script(self) -> str:
        return (self._folder / "script.1").read_text()


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    folder = tmp_path / "slurm"
    folder.mkdir()
    for command, text in COMMANDS.items():
        (folder / command).write_text(text.format(folder=folder))
        (folder / command).chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return Queue(folder)


@pytest.fixture
def drive(store: Store, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    w = Workflow("queued")
    w.add(toys.field, place=Place(over={"config": ["a", "b"]}))

    def begin(limits: Limits = LIMITS, **options: object) -> object:
        monkeypatch.setattr("pipeline.running.driver.LIMITS", limits)
        return run(plan(w, store), store, cluster=JobQueue(SITE), **options)  # type: ignore[arg-type]

    return begin


def left_behind(store: Store, run: str, *jobs: int) -> JobList:
    folder = store.path / ".runs" / run
    folder.mkdir(parents=True)
    left = JobList(folder)
    for job in jobs:
        left.add("slurm", str(job))
    (folder / ".dask-jobqueue.worker.key.x").write_text("a secret")
    return left


def test_a_machine_without_slurm_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        pytest.raises(InputError, match="by sbatch, which is not on this machine's PATH"),
        JobQueue(SITE).open(Demand(1, 0)),
    ):
        pass


def test_pending_jobs_are_ended_with_their_run(drive: Callable, store: Store, queue: Queue) -> None:
    seen: dict[int, str] = {}

    def listen(event: dict) -> None:
        if event["event"] == "waiting":
            seen.update(queue.jobs)
            (jobs,) = job_lists(store)
            assert sorted(jobs.ids()) == ["1", "2"]
            (key,) = jobs.folder.glob(".dask-jobqueue.worker.key.*")
            assert key.stat().st_mode & 0o777 == 0o600

    outcome = drive(time_limit=8.0, limits=Limits(saying=0.3), listener=listen)
    assert outcome.exit_status == 3
    assert set(seen.values()) == {f"quarkline-{outcome.run}"}
    assert not queue.jobs
    assert not job_lists(store)
    assert not list(store.path.glob(".runs/*/.dask*"))
    assert "export DASK_DISTRIBUTED__WORKER__HTTP__ROUTES=[]" in queue.script
    assert "--dashboard-address 127.0.0.1:0" in queue.script


def test_jobs_that_were_cancelled_are_submitted_again_within_a_budget(drive, store, queue, monkeypatch):
    monkeypatch.setattr("pipeline.running.workforce.REVIVAL", 0.1)

    def listen(event: dict) -> None:
        if event["event"] == "waiting":
            queue.drop()

    outcome = drive(time_limit=60.0, limits=Limits(saying=0.1, vain_deaths=2), listener=listen)
    assert outcome.exit_status == 3
    assert "workers that ended before they began a chunk" in outcome.stopped
    assert 4 <= queue.submitted <= 8
    said = [event.message for event in read_events(store, outcome.run)]
    assert any("submitted again, which the queue does not have (cancelled" in message for message in said)


def test_jobs_of_a_dead_driver_are_named_and_cancelled_by_number_and_name(store: Store, queue: Queue) -> None:
    store.create()
    left = left_behind(store, "20260101-000000-abcd", 7, 8, 9)
    queue.add(7, left.name)
    queue.add(8, "somebody-elses")  # Slurm gave the number again
    queue.add(10, left.name)  # never written down
    assert "jobs 7, 8, 9 of run 20260101-000000-abcd, whose driver is gone" in str(status(store))
    (said,) = cancel_left_jobs(store)
    assert said == "cancelled jobs 7, which run 20260101-000000-abcd had left in the queue"
    assert set(queue.jobs) == {8, 10}
    assert "-j 7,8,9 " in (queue._folder / "asked").read_text()
    assert not job_lists(store)
    assert not list(left.folder.glob(".dask*"))
    assert "whose driver is gone" not in str(status(store))


def test_jobs_are_kept_in_mind_while_slurm_does_not_answer(store: Store, queue: Queue) -> None:
    store.create()
    left_behind(store, "20260101-000000-abcd", 7)
    (queue._folder / "squeue").write_text("#!/bin/sh\nexit 1\n")
    (said,) = cancel_left_jobs(store)
    assert "jobs 7 of run 20260101-000000-abcd may still be queued" in said
    assert len(job_lists(store)) == 1


def test_jobs_of_a_batch_system_that_is_not_known_any_more_are_named(store: Store, queue: Queue) -> None:
    store.create()
    folder = store.path / ".runs" / "20260101-000000-abcd"
    folder.mkdir(parents=True)
    (folder / "jobs").write_text("htcondor 7.0\nhtcondor 8.0\n")
    (said,) = cancel_left_jobs(store)
    assert said == f"jobs 7.0, 8.0 of run {folder.name} may still be queued, and htcondor cannot be asked"
    assert len(job_lists(store)) == 1


def test_a_list_of_jobs_that_somebody_wrote_names_numbers_only(store: Store) -> None:
    store.create()
    left = left_behind(store, "20260101-000000-abcd", 7)
    with open(left.folder / "jobs", "a") as lines:
        lines.write("--user=root\n12;rm -rf x\n\n²\n8")
    assert left.ids() == ["7", "8"]


def test_why_slurm_refuses_jobs_is_said_and_the_run_ends(drive, store, queue, monkeypatch):
    monkeypatch.setattr("pipeline.running.workforce.REVIVAL", 0.1)
    (queue._folder / "sbatch").write_text("#!/bin/sh\necho invalid partition specified: gold >&2\nexit 1\n")
    outcome = drive(time_limit=60.0, limits=Limits(vain_deaths=1))
    assert outcome.exit_status == 3
    said = [event.message for event in read_events(store, outcome.run)]
    assert any("invalid partition specified: gold" in message for message in said)
