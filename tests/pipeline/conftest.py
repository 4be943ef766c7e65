"""Fixtures for the engine's tests: a store, a log of executions, one small cluster for the whole session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from executions import Executions

from campaign import Campaign
from pipeline import Outcome, Store, Workflow, plan, run
from pipeline.running.clusters.address import Address
from pipeline.running.clusters.choose import choose


@pytest.fixture(scope="session")
def cluster(scheduler: str) -> Address:
    return choose(scheduler)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def executed(log_path: Path) -> Executions:
    return Executions(log_path)


@pytest.fixture
def compute(store: Store, cluster: Address) -> Callable[[Workflow], Outcome]:
    """Plans a workflow and runs what is missing on the session's cluster."""
    return lambda workflow: run(plan(workflow, store), store, cluster=cluster)


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    made = Campaign(tmp_path)
    yield made
    for process in made.processes():
        process.kill()
