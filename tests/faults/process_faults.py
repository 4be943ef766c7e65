"""Drivers and workers that are killed or stopped, several in a run, at random places; poisonous chunks."""

from __future__ import annotations

import time

from fault_campaign import Campaign
from strikes import Order
from verdict import chunk_paths

AT_WORK = ("compute", "draft", "write", "flush", "commit", "published", "read")


def storm(campaign: Campaign) -> str:
    """Two runs, each with faults of workers and one of its driver; each goes on where the last one ended."""
    choice = campaign.choice
    for _ in range(2):
        for _ in range(choice.randrange(2, 6)):
            strike_worker(campaign)
        strike_driver(campaign)
        campaign.run(warm=choice.random() < 0.7)
        campaign.withdraw()
    return ""


def strike_worker(campaign: Campaign) -> Order:
    place, after = campaign.choice.choice(AT_WORK), campaign.choice.randrange(8)
    if campaign.choice.random() < 0.75:
        return campaign.order("SIGKILL of a worker", "kill", place, after=after)
    return campaign.order("SIGSTOP of a worker, a second", "stop", place, after=after)


def strike_driver(campaign: Campaign) -> Order:
    """The driver of a local cluster is its scheduler and its nannies, too."""
    place = campaign.choice.choice((*AT_WORK, "start", "notes", "end"))
    after = 0 if place in ("start", "end") else campaign.choice.randrange(3 if place == "notes" else 30)
    if campaign.choice.random() < 0.75:
        return campaign.order("SIGKILL of the driver", "kill", place, after=after, target="driver")
    return campaign.order("SIGSTOP of the driver, a second", "stop", place, after=after, target="driver")


def everybody(campaign: Campaign) -> str:
    """The driver at one place, and both workers at the next ones: a machine that goes down."""
    places = campaign.choice.sample(AT_WORK, 3)
    for place, target in zip(places, ("self", "self", "driver"), strict=True):
        kind = "SIGKILL of the driver" if target == "driver" else "SIGKILL of a worker"
        campaign.order(kind, "kill", place, after=campaign.choice.randrange(4), target=target)
    campaign.run()
    return ""


def long_stop(campaign: Campaign) -> str:
    """A worker that stays stopped is replaced, and its chunk computed by another."""
    place = campaign.choice.choice(AT_WORK)
    campaign.order("SIGSTOP of a worker, long", "stop", place, after=campaign.choice.randrange(10))
    campaign.run()
    return ""


def poison(campaign: Campaign) -> str:
    """One chunk kills whoever computes it: it fails alone, and all that does not need it is there."""
    config, noise = campaign.choice.choice("abcde"), campaign.choice.randrange(0, 8, 2)
    place = campaign.choice.choice(("compute", "compute", "write"))
    match = f"loops-{config}-{noise}" if place == "compute" else "/loops-"
    details = {} if place == "compute" else {"times": 3}
    campaign.order("a chunk that is poison", "kill", place, match=match, **{"times": -1, **details})
    began = time.monotonic()
    ended = campaign.run()
    if place == "compute" and ended.status is not None:
        assert ended.status == 1, (ended, time.monotonic() - began)
        assert len(chunk_paths(campaign.store)) == 41, ended.output
    return "its worker died every time"


def signals(campaign: Campaign) -> str:
    """A batch system's SIGTERM or the loss of a terminal, at any place: a clean end with exit code 3."""
    place, after = campaign.choice.choice((*AT_WORK, "notes")), campaign.choice.randrange(10)
    act, name = campaign.choice.choice((("end", "SIGTERM"), ("hang", "SIGHUP")))
    campaign.order(f"{name} of the driver", act, place, after=after, target="driver")
    campaign.run()
    return f"stopped by {name}"


def long_log(campaign: Campaign) -> str:
    """The log passes its bounds from its first line on; a worker is killed, then the driver."""
    campaign.options["long"] = True
    campaign.note("a log beyond its bounds", "start and end")
    strike_worker(campaign)
    strike_driver(campaign)
    campaign.run()
    return ""


CASES = {storm: 22, everybody: 5, long_stop: 2, poison: 3, signals: 6, long_log: 3}
"""How often each is done in the long form."""
