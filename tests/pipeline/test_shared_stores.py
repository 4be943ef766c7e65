"""Drivers that share a store: the same digests as one, nothing computed twice, dead ones' work taken over."""

from __future__ import annotations

import os
import random
import signal
import string
import subprocess
import time
from collections import Counter

import pytest
import toy_driver
import toy_stages as toys

from campaign import PATIENCE, Campaign
from pipeline import Store, plan, run, verify
from pipeline.running.clusters.address import Address
from pipeline.store.lock import current_drivers

SHARING = ("workers=1", "share=yes")
MANY = string.ascii_lowercase[:12]


def outputs(drivers: list[subprocess.Popen[str]]) -> list[tuple[int, str]]:
    """Exit codes and last words."""
    ended = [(driver, *driver.communicate(timeout=PATIENCE)) for driver in drivers]
    return [(driver.returncode, output + errors) for driver, output, errors in ended]


def assert_complete(campaign: Campaign, configs: str, cluster: Address, reference: Campaign) -> None:
    """What one driver alone computes, and nothing left behind."""
    undisturbed = Store(reference.path)
    assert (
        run(plan(toy_driver.workflow_of(configs), undisturbed), undisturbed, cluster=cluster).exit_status == 0
    )
    assert campaign.digests() == reference.digests()
    store = Store(campaign.path)
    assert not verify(store).damaged
    assert not current_drivers(store)
    assert not list(store.temporary.iterdir())


def assert_nothing_twice(campaign: Campaign) -> None:
    """No chunk was begun twice; transient stages may be, one for each that needs them."""
    kept = {"field", "loops", "first", "mean"}
    places = Counter(
        (line["stage"], str(line["at"])) for line in toys.executions(campaign.log) if line["stage"] in kept
    )
    assert not {place for place, number in places.items() if number > 1}


@pytest.mark.slow
def test_two_drivers_share_a_store(campaign: Campaign, cluster: Address, tmp_path_factory) -> None:
    drivers = [campaign.start(*SHARING, "configs=abc") for _ in range(2)]
    ended = outputs(drivers)
    codes = {code for code, _ in ended}
    assert 0 in codes and codes <= {0, 4}, ended
    if 4 in codes:
        assert any("in work by other drivers: the last of them ends the run" in text for _, text in ended)
    computed = {line["pid"] for line in toys.executions(campaign.log)}
    assert len(computed) == 2
    assert_nothing_twice(campaign)
    assert_complete(campaign, "abc", cluster, Campaign(tmp_path_factory.mktemp("undisturbed")))


@pytest.mark.slow
def test_who_waits_sees_the_end(campaign: Campaign, cluster: Address, tmp_path_factory) -> None:
    drivers = [campaign.start("workers=1", "share=wait", f"configs={MANY}") for _ in range(3)]
    ended = outputs(drivers)
    assert [code for code, _ in ended] == [0, 0, 0], ended
    assert_nothing_twice(campaign)
    assert_complete(campaign, MANY, cluster, Campaign(tmp_path_factory.mktemp("undisturbed")))


@pytest.mark.slow
def test_four_drivers_in_a_storm_of_kills(campaign: Campaign, cluster: Address, tmp_path_factory) -> None:
    """Whole drivers with their workers are killed; others are started until one says that all is there."""
    chance = random.Random(11)
    drivers = [campaign.start(*SHARING, f"configs={MANY}") for _ in range(4)]
    committed: list[int] = []
    for _ in range(6):
        time.sleep(chance.uniform(0.5, 3.0))
        committed.append(len(campaign.digests()) if Store(campaign.path).exists() else 0)
        victim = drivers.pop(chance.randrange(len(drivers)))
        os.killpg(victim.pid, signal.SIGKILL)
        victim.communicate()
        drivers.append(campaign.start(*SHARING, f"configs={MANY}"))
    ended = outputs(drivers)
    assert {code for code, _ in ended} <= {0, 4}, ended
    if plan(
        toy_driver.workflow_of(MANY), Store(campaign.path)
    ).missing:  # the last one's share of a dead one's
        assert outputs([campaign.start(*SHARING, f"configs={MANY}")])[0][0] == 0
    assert committed == sorted(committed)
    campaign.wait_for_silence()
    assert_complete(campaign, MANY, cluster, Campaign(tmp_path_factory.mktemp("undisturbed")))
