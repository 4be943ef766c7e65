"""Jobs that come and go with the work: when they are submitted, which of them leave."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.running.clusters.section import Workers
from pipeline.running.elastic import IDLE, Elastic


class Jobs:
    """A cluster of jobs with two workers each."""

    each = 2

    def __init__(self, least: int, most: int, wanted: int) -> None:
        self.bounds = Workers(min=least, max=most)
        self.names = [f"job{number}" for number in range(wanted)]
        self.dismissed: list[set[str]] = []

    @property
    def wanted(self) -> int:
        return len(self.names)

    def want(self, workers: int) -> None:
        self.names = [f"job{number}" for number in range(-(-workers // self.each))]

    def members(self) -> dict[str, set[str]]:
        return {name: {f"{name}-0", f"{name}-1"} for name in self.names}

    def dismiss(self, names: set[str]) -> None:
        self.dismissed.append(names)
        self.names = [name for name in self.names if name not in names]


@pytest.fixture
def at_work() -> SimpleNamespace:
    """What the scheduler knows, to be changed by a test."""
    return SimpleNamespace(tasks=0, workers={}, retired=[], said=[])


def elastic(jobs: Jobs, at_work: SimpleNamespace) -> Elastic:
    client: Any = SimpleNamespace(
        cluster=jobs,
        run_on_scheduler=lambda function: (at_work.tasks, at_work.workers),
        retire_workers=lambda workers: at_work.retired.extend(workers),
    )
    log: Any = lambda event: at_work.said.append(event.message)  # noqa: E731
    return Elastic(client, log)


def test_jobs_are_submitted_for_waiting_tasks_within_bounds(at_work: SimpleNamespace) -> None:
    jobs = Jobs(0, 8, wanted=1)
    crew = elastic(jobs, at_work)
    at_work.tasks = 5
    assert crew.adjust(0.0) == set() and jobs.wanted == 3
    at_work.tasks = 1000
    crew.adjust(1.0)
    assert jobs.wanted == 4
    expected = ["2 jobs submitted: 5 tasks to do for 1 job", "1 job submitted: 1000 tasks to do for 3 jobs"]
    assert at_work.said == expected


def test_nothing_leaves_before_there_was_work(at_work: SimpleNamespace) -> None:
    """Jobs may wait in the queue for days while tasks are not known to the scheduler."""
    jobs = Jobs(0, 8, wanted=4)
    crew = elastic(jobs, at_work)
    for moment in (0.0, 10 * IDLE):
        assert crew.adjust(moment) == set()
    assert jobs.wanted == 4


def test_jobs_without_work_leave_after_a_while_and_those_in_the_queue_first(at_work: SimpleNamespace) -> None:
    jobs = Jobs(0, 8, wanted=4)  # job3 waits in the queue; of job1 one worker has work
    crew = elastic(jobs, at_work)
    at_work.workers = {f"job{k}-{i}": (f"tcp://{k}{i}", 0) for k in range(3) for i in range(2)}
    at_work.workers["job1-1"] = ("tcp://11", 3)
    at_work.tasks = 3
    assert crew.adjust(0.0) == set()
    assert crew.adjust(IDLE - 1) == set() and jobs.wanted == 4
    assert crew.adjust(IDLE) == {"tcp://00", "tcp://01"}
    assert jobs.dismissed == [{"job3", "job0"}] and at_work.retired == ["tcp://00", "tcp://01"]
    assert at_work.said == ["2 jobs ended, without work for 1m: 3 tasks to do"]


def test_a_job_that_had_work_in_between_stays_and_so_does_the_least_number(at_work: SimpleNamespace) -> None:
    jobs = Jobs(2, 8, wanted=2)
    crew = elastic(jobs, at_work)
    at_work.workers = {"job0-0": ("a", 1), "job0-1": ("b", 0), "job1-0": ("c", 0), "job1-1": ("d", 0)}
    at_work.tasks = 1
    crew.adjust(0.0)
    at_work.workers["job1-0"] = ("c", 1)
    crew.adjust(IDLE / 2)
    at_work.workers["job1-0"] = ("c", 0)
    assert crew.adjust(IDLE) == set()  # its time began anew
    assert crew.adjust(2 * IDLE) == {"c", "d"}
    at_work.workers = {"job0-0": ("a", 0), "job0-1": ("b", 0)}
    at_work.tasks = 0
    for moment in (3 * IDLE, 4 * IDLE, 5 * IDLE):
        assert crew.adjust(moment) == set()
    assert jobs.wanted == 1
