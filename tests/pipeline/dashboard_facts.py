"""A campaign as the dashboard sees it once it has read all of a store."""

from __future__ import annotations

from pipeline import Store
from pipeline.reading.dashboard.facts.campaign import Campaign
from workflows.shared.dashboard import DASHBOARD
from workflows.shared.dashboard.samples import Samples

ENOUGH = 5
"""Looks that find nothing new: on a busy machine one may not come to read anything."""


def read_whole(store: Store, campaign: Campaign | None = None) -> Campaign:
    """All that is new in the store, in as many looks as that takes."""
    campaign = campaign or Campaign(store, DASHBOARD.facts)
    before, alike = None, 0
    for _ in range(400):
        campaign.refresh()
        state = campaign.records.read, campaign.records.waiting, dict(campaign.own(Samples).curves)
        alike = alike + 1 if state == before and not campaign.records.waiting else 0
        before = state
        if alike == ENOUGH:
            break
    return campaign
