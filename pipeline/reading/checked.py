"""The section of a report on checks against silent errors, from the records of its chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.reading.report import Section, Table

COLUMNS = ["node", "chunks", "repeated in part", "checksums, MB", "seconds", "share of its time"]


def checks_section(records: Mapping[str, Sequence[Mapping[str, Any]]]) -> Section:
    """Checks of each node's chunks, from records by node; those of earlier versions have none."""
    rows = []
    for node, of_node in records.items():
        checks = [record["checks"] for record in of_node if "checks" in record]
        seconds = sum(check["seconds"] for check in checks)
        total = sum(record["seconds"] for record in of_node) or 1.0
        rows.append(
            [
                node,
                len(of_node),
                sum(check["repeated"] for check in checks),
                f"{sum(check['bytes'] for check in checks) / 1e6:.1f}",
                f"{seconds:.3f}",
                f"{100 * seconds / total:.2f} %",
            ]
        )
    repeated = sum(row[2] for row in rows)
    second = "No chunk was drawn to be computed a second time."
    if repeated:
        second = (
            f"A part of {repeated} of the chunks was computed a second time by other code; their records say "
            "what."
        )
    text = (
        f"Checksums of what workers held were compared before each commit. {second} A chunk that disagreed "
        "is not among the results: it was computed again."
    )
    return Section("Checks against silent errors", text, [Table(COLUMNS, rows)])
