"""A campaign as the dashboard sees it once it has read all of a store."""

from __future__ import annotations

from pipeline import Store
from pipeline.running.dashboard.facts.campaign import Campaign


def read_whole(store: Store, campaign: Campaign | None = None) -> Campaign:
    """All that is new in the store, in as many looks as that takes."""
    campaign = campaign or Campaign(store)
    campaign.refresh()
    for _ in range(200):
        if not campaign.records.waiting:
            break
        campaign.refresh()
    for _ in range(3):  # what a look had no time for
        campaign.refresh()
    return campaign
