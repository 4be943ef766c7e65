"""Workers as jobs of a real Slurm: lost ones are replaced, each worker has a GPU of its own."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from campaigns_on_slurm import ROOT, SlurmCampaign
from controlled_slurm import ControlledSlurm

from pipeline.batch import State, batch_system
from pipeline.running.clusters import Demand
from pipeline.running.clusters.jobqueue import JobQueue
from pipeline.running.clusters.jobs import JobList
from pipeline.running.clusters.section import ClusterSection, Workers
from pipeline.running.elastic import Elastic

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]
pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")


@pytest.fixture
def commands(slurm: ControlledSlurm, monkeypatch: pytest.MonkeyPatch) -> ControlledSlurm:
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    return slurm


def test_jobs_that_are_cancelled_are_replaced_and_the_digests_are_the_same(
    campaign: SlurmCampaign, slurm: ControlledSlurm, undisturbed: dict
) -> None:
    driver = campaign.start(
        *("run", "g2.yaml", "--cluster", "site.yaml", "--set", "cluster.interface=lo"),
        *("--set", "cluster.workers={min: 0, max: 3}"),
    )
    campaign.wait_for_commits(3)
    assert len(slurm.jobs()) <= 3
    (first, *_) = slurm.wait_for_jobs(1, "RUNNING")
    slurm.ask("scancel", first)
    out, _ = driver.communicate(timeout=280)
    assert driver.returncode == 0, out
    assert campaign.digests() == undisturbed
    assert not slurm.jobs()
    assert not list(campaign.store.path.glob(".runs/*/.dask*"))
    assert list(campaign.store.path.glob(".runs/*/logs/quarkline-*.err"))


def test_squeue_tells_the_living_from_the_dead(commands: ControlledSlurm, tmp_path: Path) -> None:
    slurm, script = batch_system("slurm"), tmp_path / "script"
    script.write_text("#!/bin/bash\n#SBATCH -n 1\n#SBATCH --output=/dev/null\nsleep 100\n")
    first = slurm.submit(script)
    second = slurm.submit(script, after=first)
    assert (slurm.state(first), slurm.state(second), slurm.state("99999")) == ("alive", "alive", "ended")
    assert slurm.cancel([first])
    deadline = time.monotonic() + 30
    while slurm.state(first) == State.ALIVE and time.monotonic() < deadline:
        time.sleep(0.3)
    looks = slurm.look([first, second, "99999"])
    assert [seen.state for seen in looks.values()] == ["ended", "alive", "ended"]
    assert slurm.cancel([second])
    script.write_text(script.read_text().replace("-n 1", "--array=0-1"))
    array = slurm.submit(script)
    assert [slurm.state(job) for job in (array, f"{array}_1", f"{array}_7")] == ["alive", "alive", "ended"]
    assert slurm.cancel([array])


def test_jobs_come_and_go_with_the_work(
    commands: ControlledSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.running.elastic.IDLE", 1.0)
    site = ClusterSection(
        kind="slurm",
        cores=1,
        memory="1GB",
        walltime="10m",
        interface="lo",
        environment={"PYTHONPATH": str(ROOT)},
        workers=Workers(min=0, max=3),
    )
    said: list[str] = []
    with JobQueue(site).open(Demand(1, 0, jobs=JobList(tmp_path))) as client:
        client.cluster.bounds = site.workers  # more tasks came than were planned
        elastic, numbers = Elastic(client, lambda event: said.append(event.message)), []
        work = [client.submit(time.sleep, 2.0 + k, resources={"device": 1}, pure=False) for k in range(6)]
        deadline = time.monotonic() + 90
        while (commands.jobs() or work) and time.monotonic() < deadline:
            elastic.adjust(time.monotonic())
            work = [
                each for each in work if each.status != "finished"
            ]  # results that are kept would come back
            numbers.append(len(commands.jobs()))
            time.sleep(0.3)
        assert not work and not commands.jobs(), said
        assert max(numbers) == 3
    assert "submitted" in said[0] and "without work" in said[-1]


def test_each_worker_of_a_job_has_a_gpu_of_its_own(commands: ControlledSlurm, tmp_path: Path) -> None:
    site = ClusterSection(
        kind="slurm",
        backend="cuda",
        gpus=2,
        cores=2,
        memory="1GB",
        walltime="10m",
        interface="lo",
        environment={"PYTHONPATH": str(ROOT)},
        workers=Workers(min=2, max=2),
    )
    with JobQueue(site).open(Demand(2, 0, jobs=JobList(tmp_path))) as client:
        client.wait_for_workers(2, timeout=150)
        seen = client.run(os.getenv, "CUDA_VISIBLE_DEVICES")
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        assert sorted(seen.values()) == ["0", "1"]
        assert all(worker["resources"] == {"device": 1} and worker["nthreads"] == 1 for worker in workers)
        assert len(commands.jobs()) == 1
    deadline = time.monotonic() + 30
    while commands.jobs() and time.monotonic() < deadline:
        time.sleep(0.3)
    assert not commands.jobs()
