"""Multigrid setups: how fast their cycles converge."""

from __future__ import annotations

from pipeline.declare.duration import duration_text
from pipeline.reading.dashboard.facts.campaign import Campaign
from pipeline.reading.dashboard.look import Cell, Linked, html, table

HEADS = ("setup", "residual after a cycle", "attempts", "grids", "took")


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
                _took(each.get("setup_seconds")),
            ]
            for each in reversed(campaign.records.setups)
        ]

    def show(self, rows: list[list[Cell]]) -> None:
        """Replace the table."""
        self.root.text = (
            f"<h2>Multigrid setups</h2>{table(HEADS, rows) if rows else '<p>none in this store</p>'}"
        )


def _took(seconds: float | None) -> str | None:
    return None if seconds is None else duration_text(seconds)
