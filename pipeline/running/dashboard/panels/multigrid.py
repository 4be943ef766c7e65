"""Multigrid setups: how fast their cycles converge."""

from __future__ import annotations

from pipeline.running.dashboard.facts.campaign import Campaign
from pipeline.running.dashboard.look import Cell, Linked, html, table

HEADS = ("setup", "residual after a cycle", "attempts", "grids", "seconds")


class Setups:
    """A table of the setups that were committed last."""

    def __init__(self) -> None:
        self.root = html()

    @staticmethod
    def read(campaign: Campaign) -> list[list[Cell]]:
        """Rows, newest first."""
        return [
            [
                Linked(each["label"], f"chunk/{each['stage']}/{each['key']}"),
                each["rate"],
                len(each["attempts"]),
                " / ".join(each.get("grids", ())),
                each.get("setup_seconds"),
            ]
            for each in reversed(campaign.records.setups)
        ]

    def show(self, rows: list[list[Cell]]) -> None:
        """Replace the table."""
        self.root.text = (
            f"<h2>Multigrid setups</h2>{table(HEADS, rows) if rows else '<p>none in this store</p>'}"
        )
