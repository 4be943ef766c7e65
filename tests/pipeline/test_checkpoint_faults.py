"""A long stage is killed: it goes on from its checkpoint, with the same result. (In short: tests/faults.)"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest
import toy_driver
import toy_stages as toys

from campaign import PATIENCE, Campaign
from pipeline import Store, plan, run, verify
from pipeline.running.clusters.address import Address

LENGTH = 40
STEPS = 2 * LENGTH


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, cluster: Address, log_path: Path
) -> dict[str, dict[str, str]]:
    """Digests of a run that nothing happened to, on the session's cluster."""
    campaign = Campaign(tmp_path_factory.mktemp("undisturbed"))
    store, earlier = Store(campaign.path), len(toys.executions(log_path))
    assert run(plan(toy_driver.long_workflow(), store), store, cluster=cluster).exit_status == 0
    assert len(toys.executions(log_path)) == earlier + STEPS
    return campaign.digests()


def kill_and_resume(campaign: Campaign, victim: str, seed: int) -> None:
    """Kill the driver or one worker when at least half of the steps are done."""
    choice = random.Random(seed)
    driver = campaign.start("long=1")
    campaign.wait_for_executions(choice.randrange(STEPS // 2, STEPS - 10), driver)
    if victim == "driver":
        driver.kill()
        driver.communicate()
        assert list((campaign.path / ".checkpoints").glob("*/*/state-*"))
        driver = campaign.start("long=1")
    else:
        workers = [pid for pid in campaign.worker_pids() if psutil.pid_exists(pid)]
        os.kill(choice.choice(workers), signal.SIGKILL)
    output = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 0, output
    campaign.wait_for_silence()


def assert_only_the_tail_again(campaign: Campaign, undisturbed: dict[str, dict[str, str]]) -> None:
    store = Store(campaign.path)
    assert campaign.digests() == undisturbed
    assert not verify(store).damaged
    assert not store.checkpoints.exists()
    first = [store.record("steps", key)["statistics"]["first"] for key in store.keys("steps")]
    assert sorted(first) == sorted(LENGTH - steps for steps in last_attempts(campaign)) and max(first) > 0


def last_attempts(campaign: Campaign) -> list[int]:
    """Steps that the last process to work on each of the two chunks has done."""
    steps = Counter((tuple(line["at"]["config"]), line["pid"]) for line in toys.executions(campaign.log))
    return list({config: number for (config, _), number in steps.items()}.values())


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["driver", "worker"])
def test_only_the_tail_is_computed_again(campaign, undisturbed, victim):
    kill_and_resume(campaign, victim, 811)
    assert_only_the_tail_again(campaign, undisturbed)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("victim", ["driver", "worker"])
@pytest.mark.parametrize("seed", range(4001, 4006))
def test_only_the_tail_is_computed_again_ten_times(campaign, undisturbed, victim, seed):
    kill_and_resume(campaign, victim, seed)
    assert_only_the_tail_again(campaign, undisturbed)
