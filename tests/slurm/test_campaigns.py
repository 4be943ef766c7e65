"""Campaigns on a real Slurm: whatever befalls their jobs, they end with the digests of an undisturbed run."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from campaigns_on_slurm import SlurmCampaign
from controlled_slurm import KILL_WAIT, ControlledSlurm

from pipeline import verify
from pipeline.store.ledger import Ledger
from pipeline.store.lock import current_drivers
from support.foreign_writers import write_milc

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
        if "workflows.campaign" in line and any(str(campaign.store.path) in word for word in line):
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


def small(campaign: SlurmCampaign) -> None:
    """Two configurations, four noise vectors."""
    text = (campaign.folder / "g2.yaml").read_text()
    text = text.replace("configurations: 12", "configurations: 2").replace(
        "vectors: 64, chunk: 32", "vectors: 4, chunk: 4"
    )
    (campaign.folder / "g2.yaml").write_text(text.replace("vectors: 32", "vectors: 4"))


def test_files_beside_the_workflow_named_like_modules_are_not_imported(
    campaign: SlurmCampaign, traps: Path
) -> None:
    assert traps == campaign.folder
    small(campaign)
    campaign.submit()
    campaign.wait_for_end()
    assert campaign.ledger("ended")[-1]["missing"] == 0, campaign.words()
    assert ": complete" in campaign.quarkline("status", "store").stdout


def test_status_names_a_job_that_died_at_its_import_and_a_cancelled_chain(
    campaign: SlurmCampaign, slurm: ControlledSlurm, tmp_path: Path
) -> None:
    small(campaign)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "distributed.py").write_text("raise ImportError('a broken installation')")
    site, path = campaign.folder / "site.yaml", tmp_path / "broken"
    written = site.read_text()
    site.write_text(written.replace('PYTHONPATH: "', f'PYTHONPATH: "{path}:'))
    campaign.submit()
    campaign.wait_for_end()
    said = campaign.quarkline("status", "store").stdout
    assert "it died at its start: ImportError: a broken installation" in said
    assert "a broken installation" in campaign.words()
    site.write_text(written)
    campaign.submit()
    (first,) = slurm.wait_for_jobs(1, "RUNNING")
    (second,) = slurm.wait_for_jobs(1, "PENDING")
    assert re.search(f"job {first} at work; job {second} waits", campaign.quarkline("status", "store").stdout)
    slurm.ask("scancel", first, second)
    campaign.wait_for_end()
    said = campaign.quarkline("status", "store").stdout
    assert (
        f"job {second} after {first} ended before it began to work" in said and "no job of it is left" in said
    )


def test_a_job_that_was_put_back_is_charged_until_it_begins_again(
    campaign: SlurmCampaign, slurm: ControlledSlurm
) -> None:
    """And not its walltime of ten minutes. Slurm lets it wait for two minutes."""
    campaign.submit("--set", "cluster.walltime=00:10:00")
    (job,) = slurm.wait_for_jobs(1, "RUNNING")
    campaign.wait_for_commits(1)
    took = time.time() - campaign.ledger("began")[0]["time"]
    slurm.ask("scontrol", "requeue", job)
    slurm.wait_for_state(job, "PENDING")
    while len(campaign.ledger("began")) < 2:
        time.sleep(0.5)
    before, now = (each for each in Ledger(campaign.store).state().jobs if each.job == job)
    assert before.state in ("killed", "ended") and now.state == "began"
    assert before.began is not None and now.began is not None
    assert took <= before.charged(time.time() + 6000.0) <= now.began - before.began < 600.0
    campaign.quarkline("submit", "g2.yaml", "--stop")
