"""Fixtures for the engine's tests: a store, a log of executions, one small cluster for the whole session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import toy_stages as toys
from campaign import Campaign
from distributed import LocalCluster
from executions import Executions

from pipeline import Outcome, Store, Workflow, plan, run
from pipeline.running.clusters.address import Address


@pytest.fixture(scope="session")
def log_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session's workers write down what they execute."""
    path = tmp_path_factory.mktemp("log") / "executions.jsonl"
    os.environ[toys.LOG] = str(path)
    return path


@pytest.fixture(scope="session")
def cluster(log_path: Path) -> Iterator[Address]:
    """Two workers on this machine, as somebody else's cluster."""
    options: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": None, "resources": {"device": 1}}
    with LocalCluster(n_workers=2, threads_per_worker=1, memory_limit=0, **options) as running:
        yield Address(running.scheduler_address)


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
