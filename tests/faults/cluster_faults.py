"""Schedulers, nannies, workers and drivers in processes of their own, killed and stopped one by one."""

from __future__ import annotations

import time

from fault_campaign import PATIENCE, Campaign, kill_session
from process_faults import AT_WORK, strike_worker
from zygote import Started


def storm(campaign: Campaign) -> str:
    """Workers and a nanny die, scheduler and nanny stand still for a second; then the driver is killed."""
    assemble(campaign)
    choice = campaign.choice
    for role in ("scheduler", "nanny"):
        strike(campaign, "SIGSTOP of a " + role + ", a second", "stop", role)
    strike(campaign, "SIGKILL of a nanny", "kill", "nanny")
    for _ in range(choice.randrange(1, 3)):
        strike_worker(campaign)
    driver = {"target": "driver", "after": choice.randrange(15, 30)}
    campaign.order("SIGKILL of the driver", "kill", choice.choice(("compute", "commit")), **driver)
    campaign.run()
    campaign.withdraw()
    campaign.run()  # on what is left of the cluster
    disband(campaign)
    return ""


def lost_scheduler(campaign: Campaign) -> str:
    """The run ends and says so; the next one has another cluster."""
    assemble(campaign)
    strike_worker(campaign)
    strike(campaign, "SIGKILL of the scheduler", "kill", "scheduler", most=25)
    campaign.run()
    disband(campaign)
    return "stopped by loss of the scheduler|no Dask scheduler answers"


def strike(campaign: Campaign, kind: str, act: str, role: str, most: int = 12) -> None:
    place = campaign.choice.choice(AT_WORK)
    campaign.order(kind, act, place, target=role, after=campaign.choice.randrange(most))


def assemble(campaign: Campaign) -> None:
    """Start a scheduler and two nannies."""
    address = campaign.folder / "address"
    begin(campaign, "scheduler", str(address))
    deadline = time.monotonic() + PATIENCE
    while not address.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    for _ in range(2):
        begin(campaign, "nanny", address.read_text())
    campaign.options["cluster"] = address.read_text()


def begin(campaign: Campaign, role: str, argument: str) -> Started:
    folder, surroundings = campaign.folder / "output", campaign.surroundings
    started = campaign.zygote.start(f"fault_cluster:{role}", [argument], folder, **surroundings)
    campaign.leaders.append(started.pid)
    return started


def disband(campaign: Campaign) -> None:
    """End the cluster; what comes next has workers of its own."""
    campaign.withdraw()
    for leader in campaign.leaders:
        kill_session(leader)
    del campaign.options["cluster"]


CASES = {storm: 5, lost_scheduler: 3}
"""How often each is done in the long form."""
