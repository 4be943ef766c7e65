"""The batch system's word on whether the job of a driver has ended."""

from __future__ import annotations

from pipeline.running.clusters.batch import State, batch_system
from pipeline.store.driver import Driver

WORDS = {State.ALIVE: False, State.ENDED: True, State.UNKNOWN: None}


def job_has_ended(driver: Driver) -> bool | None:
    """True if its batch system says so, None if that does not answer or is not here."""
    if not driver.system:
        return None
    return WORDS[batch_system(driver.system).state(driver.job)]
