"""Runs whose workers are jobs of a real Slurm: lost, refused, waiting for ever, left by a killed driver."""

from __future__ import annotations

import os
import signal
import time

import pytest
from campaigns_on_slurm import SlurmCampaign
from controlled_slurm import ControlledSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

Digests = dict[str, dict[str, str]]
RUN = (
    "run",
    "g2.yaml",
    "--cluster",
    "site.yaml",
    "--set",
    "cluster.walltime=00:10:00",
    "--set",
    "cluster.interface=lo",
)


def test_jobs_that_are_cancelled_are_submitted_again(
    campaign: SlurmCampaign, slurm: ControlledSlurm, undisturbed: Digests
) -> None:
    driver = campaign.start(*RUN, "--workers", "3")
    campaign.wait_for_commits(5)
    slurm.ask("scancel", *slurm.wait_for_jobs(1, "RUNNING"))
    campaign.wait_for_commits(15)
    slurm.kill("slurmd")
    time.sleep(2.0)
    slurm.start_node()
    output, _ = driver.communicate(timeout=280)
    assert driver.returncode == 0, output
    assert campaign.digests() == undisturbed
    campaign.wait_for_end(60.0)


def test_jobs_that_wait_for_ever_end_with_the_run(campaign: SlurmCampaign, slurm: ControlledSlurm) -> None:
    began = time.monotonic()
    driver = campaign.start(
        *RUN, "--set", "cluster.partition=closed", "--workers", "2", "--time-limit", "40s"
    )
    slurm.wait_for_jobs(2, "PENDING", 40.0)
    output, _ = driver.communicate(timeout=100)
    assert driver.returncode == 3, output
    assert time.monotonic() - began < 80
    assert not slurm.jobs()


def test_jobs_that_are_refused_end_the_run(campaign: SlurmCampaign, slurm: ControlledSlurm) -> None:
    done = campaign.quarkline(*RUN, "--set", "cluster.partition=nowhere", "--workers", "2")
    assert done.returncode in (2, 3), done.stdout + done.stderr
    assert "invalid partition" in (done.stdout + done.stderr)
    assert not slurm.jobs()


def test_jobs_of_a_killed_driver_are_cancelled_by_the_next(
    campaign: SlurmCampaign, slurm: ControlledSlurm, undisturbed: Digests
) -> None:
    driver = campaign.start(*RUN, "--set", "cluster.partition=closed", "--workers", "2")
    (left, *_) = slurm.wait_for_jobs(2, "PENDING", 60.0)
    os.kill(driver.pid, signal.SIGKILL)
    driver.communicate()
    assert left in campaign.quarkline("status", "store").stdout
    done = campaign.quarkline(*RUN, "--workers", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert campaign.digests() == undisturbed
    campaign.wait_for_end(60.0)
