"""Signals, time limits, second drivers: runs end cleanly and leave nothing behind. (Kills: tests/faults.)"""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime

import pytest
import toy_driver
import toy_stages as toys

from campaign import PATIENCE, Campaign
from pipeline import Store, plan, run, status, verify
from pipeline.running.clusters.address import Address
from pipeline.running.event_log import read_events, runs
from pipeline.store.lock import current_driver


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, cluster: Address) -> dict[str, dict[str, str]]:
    """Digests of a run that nothing happened to, on the session's cluster."""
    campaign = Campaign(tmp_path_factory.mktemp("undisturbed"))
    store = Store(campaign.path)
    assert run(plan(toy_driver.workflow(), store), store, cluster=cluster).exit_status == 0
    return campaign.digests()


def assert_complete(campaign: Campaign, undisturbed: dict[str, dict[str, str]]) -> None:
    """The final arrays, no orphan, no lock, no draft, and no chunk computed again after its commit."""
    store = Store(campaign.path)
    assert campaign.digests() == undisturbed
    assert not plan(toy_driver.workflow(), store).missing
    assert not verify(store).damaged
    assert current_driver(store) is None
    assert not list(store.temporary.iterdir())
    committed = {}
    for stage in store.stages():
        for key in store.keys(stage):
            record = store.record(stage, key)
            place = (stage, str(record["coordinates"]))
            committed[place] = datetime.fromisoformat(record["finished"]).timestamp()
    for line in toys.executions(campaign.log):
        place = (line["stage"], str(line["at"]))
        assert place not in committed or line["time"] <= committed[place], f"{place} was computed again"


@pytest.mark.slow
def test_sigterm_ends_a_run_cleanly_and_it_resumes(campaign, undisturbed):
    driver = campaign.start()
    campaign.wait_for_executions(3, driver)
    os.killpg(driver.pid, signal.SIGTERM)
    output, errors = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 3, (output, errors)
    assert "stopped by SIGTERM" in output
    campaign.wait_for_silence()
    assert "stopped by SIGTERM" in str(status(Store(campaign.path)))
    driver = campaign.start()
    assert driver.wait(PATIENCE) == 0
    assert_complete(campaign, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_an_interrupt_from_the_keyboard_or_a_lost_terminal_lets_running_chunks_finish(campaign, number):
    """The terminal sends it to the workers too, and that it is lost it says twice."""
    driver = campaign.start()
    campaign.wait_for_executions(3, driver)
    for _ in range(2 if number == signal.SIGHUP else 1):
        os.killpg(driver.pid, number)
        time.sleep(0.1)
    output, errors = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 3, (output, errors)
    assert f"stopped by {number.name}" in output
    assert not errors, "no traceback of any worker"
    events = list(read_events(Store(campaign.path), runs(Store(campaign.path))[0]))
    begun = {event.key for event in events if event.kind == "started"}
    assert begun <= {event.key for event in events if event.kind == "done"}
    campaign.wait_for_silence()


@pytest.mark.slow
def test_a_time_limit_ends_a_run(campaign: Campaign) -> None:
    """The short form is that of the command line."""
    driver = campaign.start("time_limit=0.5")
    output, errors = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 3, (output, errors)
    assert "time limit of 0.5 s" in output
    campaign.wait_for_silence()


@pytest.mark.slow
def test_a_second_driver_is_refused_and_sigterm_ends_the_first_cleanly(campaign: Campaign) -> None:
    driver = campaign.start()
    campaign.wait_for_executions(1, driver)
    os.killpg(driver.pid, signal.SIGSTOP)  # it must not end before the second has started
    second = campaign.start()
    _, errors = second.communicate(timeout=PATIENCE)
    os.killpg(driver.pid, signal.SIGCONT)
    assert second.returncode == 2
    assert f"process {driver.pid} on" in errors
    assert f"run {runs(Store(campaign.path))[0]}" in errors
    os.killpg(driver.pid, signal.SIGTERM)
    output, errors = driver.communicate(timeout=PATIENCE)
    assert driver.returncode == 3, (output, errors)
    assert "stopped by SIGTERM" in output
    campaign.wait_for_silence()
    assert "stopped by SIGTERM" in str(status(Store(campaign.path)))
    events = list(read_events(Store(campaign.path), runs(Store(campaign.path))[0]))
    assert events[0].kind == "run-started"
    assert events[-1].kind == "run-ended"


@pytest.mark.slow
def test_the_first_driver_runs_to_its_end_after_a_second_was_refused(campaign, undisturbed):
    driver = campaign.start()
    campaign.wait_for_executions(1, driver)
    os.killpg(driver.pid, signal.SIGSTOP)
    assert campaign.start().wait(PATIENCE) == 2
    os.killpg(driver.pid, signal.SIGCONT)
    assert driver.wait(PATIENCE) == 0
    assert_complete(campaign, undisturbed)
