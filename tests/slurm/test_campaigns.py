"""Campaigns on a real Slurm: whatever befalls their jobs, they end with the digests of an undisturbed run."""

from __future__ import annotations

import os
import random
import signal
import time

import numpy as np
import psutil
import pytest
from campaigns_on_slurm import SlurmCampaign
from controlled_slurm import KILL_WAIT, ControlledSlurm
from foreign_writers import write_milc

from pipeline import verify
from pipeline.store.lock import current_drivers

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

Digests = dict[str, dict[str, str]]

SLOW_START = ("--set", "cluster.prologue=[sleep 20]")
"""A job's walltime of a minute then has about 20 s for work."""


def assert_complete(campaign: SlurmCampaign, undisturbed: Digests) -> None:
    """All chunks with the right digests, a report, nothing left in the queue or in the store."""
    assert campaign.digests() == undisturbed, campaign.words()
    assert (campaign.folder / "report" / "index.html").exists() or list(campaign.folder.glob("report*"))
    assert not current_drivers(campaign.store)
    assert not list(campaign.store.temporary.iterdir())
    assert not verify(campaign.store).damaged
    assert campaign.ledger("ended")[-1]["missing"] == 0


def assert_nothing_twice(campaign: SlurmCampaign) -> None:
    twice = {key: number for key, number in campaign.commits().items() if number > 1}
    assert not twice


def processes_of(campaign: SlurmCampaign) -> list[psutil.Process]:
    """Drivers of the campaign's jobs."""
    found = []
    for process in psutil.process_iter():
        try:
            line = process.cmdline()
        except psutil.Error:
            continue
        if "workflows.campaign.job" in line and any(str(campaign.store.path) in word for word in line):
            found.append(process)
    return found


def test_a_chain_outlives_its_walltimes(campaign: SlurmCampaign, undisturbed: Digests) -> None:
    submitted = campaign.submit(*SLOW_START)
    assert submitted["missing"] == len(undisturbed) and len(submitted["jobs"]) == 1
    refused = campaign.quarkline("submit", "g2.yaml", "--cluster", "site.yaml")
    assert refused.returncode == 2 and "is at work on" in refused.stderr
    campaign.wait_for_end(500.0)
    assert_complete(campaign, undisturbed)
    assert_nothing_twice(campaign)
    began, ended = campaign.ledger("began"), campaign.ledger("ended")
    assert len(began) == len(ended) > 1
    assert all(entry["seconds"] < 60 for entry in ended)
    assert sum(entry["commits"] for entry in ended) == len(undisturbed)
    assert "nothing is missing" in campaign.quarkline("submit", "g2.yaml", "--cluster", "site.yaml").stdout


def test_three_jobs_survive_scancel_requeue_and_a_killed_slurmd(
    campaign: SlurmCampaign, slurm: ControlledSlurm, undisturbed: Digests
) -> None:
    campaign.submit("--jobs", "3")
    campaign.wait_for_commits(5)
    first, second, *_ = slurm.wait_for_jobs(3, "RUNNING")
    slurm.ask("scancel", first)
    campaign.wait_for_commits(15)
    slurm.ask("scontrol", "requeue", second)
    slurm.wait_for_state(
        second, "PENDING"
    )  # a node whose slurmd dies while it ends a job is drained by Slurm
    campaign.wait_for_commits(25)
    time.sleep(KILL_WAIT + 2.0)
    slurm.kill("slurmd")
    time.sleep(3.0)
    slurm.start_node()
    campaign.wait_for_end()
    assert_complete(campaign, undisturbed)
    assert len(campaign.ledger("began")) >= 5


@pytest.mark.parametrize("number", [2, 4])
def test_array_drivers_share_a_store_in_a_storm_of_kills(
    campaign: SlurmCampaign, slurm: ControlledSlurm, undisturbed: Digests, number: int
) -> None:
    chance = random.Random(number)
    campaign.submit("--jobs", str(number))
    for _ in range(number + 1):
        campaign.wait_for_commits(len(campaign.digests()) + 3)
        time.sleep(chance.uniform(0.0, 2.0))
        if drivers := processes_of(campaign):
            os.kill(chance.choice(drivers).pid, signal.SIGKILL)
    campaign.wait_for_end()
    assert_complete(campaign, undisturbed)


@pytest.mark.parametrize("number", [2, 4])
def test_array_drivers_compute_nothing_twice(
    campaign: SlurmCampaign, undisturbed: Digests, number: int
) -> None:
    campaign.submit("--jobs", str(number))
    campaign.wait_for_end()
    assert_complete(campaign, undisturbed)
    assert_nothing_twice(campaign)
    assert len({entry["chain"] for entry in campaign.ledger("ended") if entry["commits"]}) > 1


def test_a_successor_is_submitted_once_slurm_answers_again(
    campaign: SlurmCampaign, slurm: ControlledSlurm, undisturbed: Digests
) -> None:
    campaign.submit()
    slurm.wait_for_jobs(1, "RUNNING")
    slurm.stop_controller()
    campaign.wait_for_commits(3)
    slurm.start_controller()
    campaign.wait_for_end()
    assert_complete(campaign, undisturbed)


def test_stop_ends_all_jobs_and_the_next_submission_goes_on(
    campaign: SlurmCampaign, slurm: ControlledSlurm, undisturbed: Digests
) -> None:
    campaign.submit("--jobs", "2")
    campaign.wait_for_commits(5)
    stopped = campaign.quarkline("submit", "g2.yaml", "--stop")
    assert stopped.returncode == 0 and "cancelled jobs" in stopped.stdout
    campaign.wait_for_end(60.0)
    before = campaign.digests()
    assert 5 <= len(before) < len(undisturbed)
    campaign.submit("--jobs", "2")
    campaign.wait_for_end()
    assert_complete(campaign, undisturbed)
    assert before.items() <= campaign.digests().items()


def test_two_jobs_that_bring_nothing_end_a_campaign(campaign: SlurmCampaign) -> None:
    text = (campaign.folder / "g2.yaml").read_text()
    heatbath = next(line for line in text.splitlines() if "heatbath" in line)
    file = campaign.folder / "broken.milc"
    write_milc(file, np.broadcast_to(np.eye(3, dtype=complex), (8, 4, 4, 4, 4, 3, 3)), "<")
    file.write_bytes(file.read_bytes()[:-8] + b"12345678")  # its sums are wrong now
    (campaign.folder / "g2.yaml").write_text(text.replace(heatbath, '  files: ["broken.milc"]'))
    campaign.submit()
    campaign.wait_for_end()
    (stop,) = campaign.ledger("stopped")
    assert "2 jobs in a row brought nothing" in stop["reason"] and "failures" in stop["reason"]
    assert len(campaign.ledger("began")) == 2


def test_a_budget_is_kept(campaign: SlurmCampaign) -> None:
    budget = 45.0 / 3600.0
    campaign.submit(*SLOW_START, "--node-hours", str(budget))
    campaign.wait_for_end()
    assert sum(entry["node_seconds"] for entry in campaign.ledger("ended")) <= 3600 * budget
    (stop,) = campaign.ledger("stopped")
    assert "the budget is spent" in stop["reason"]
