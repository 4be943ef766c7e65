"""The table of outcomes: kind of fault by place, and what became of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verdict import Verdict

PLACES = {
    "start": "start and end",
    "end": "start and end",
    "notes": "log, manifest, lease",
    "lock": "locks",
    "compute": "compute",
    "draft": "mid-write",
    "write": "mid-write",
    "flush": "mid-write",
    "commit": "commit",
    "published": "commit",
    "read": "read",
}
"""What the table calls the places of orders; others have their own names."""

BAD = (Verdict.UNCLEAR, Verdict.LOST, Verdict.WRONG, Verdict.HUNG)


@dataclass
class OutcomeTable:
    """Counts of faults that struck."""

    counts: dict[tuple[str, str], Counter[Verdict]] = field(default_factory=dict)
    cases: int = 0

    def note(self, strikes: Iterable[dict[str, Any]], verdict: Verdict) -> int:
        """Count the faults of one case, an order that struck several times once; returns how many."""
        self.cases += 1
        faults = {(s.get("name", f"suite-{k}"), s["kind"], s["place"]) for k, s in enumerate(strikes)}
        for _, kind, place in faults:
            self.counts.setdefault((kind, PLACES.get(place, place)), Counter())[verdict] += 1
        return len(faults)

    def total(self, *verdicts: Verdict) -> int:
        return sum(counts[verdict] for counts in self.counts.values() for verdict in verdicts)

    def rows(self) -> list[str]:
        """Lines of a Markdown table."""
        head = ["fault", "where it struck", "faults", *Verdict]
        lines = [_row(head), _row(["---"] * len(head))]
        for (kind, place), counts in sorted(self.counts.items()):
            lines.append(_row([kind, place, counts.total(), *(counts[verdict] for verdict in Verdict)]))
        lines.append(
            _row(["**all**", "", self.total(*Verdict), *(self.total(verdict) for verdict in Verdict)])
        )
        return lines

    def write(self, page: Path, heading: str) -> None:
        """Replace the table that stands between the page's two marks, with the line above it."""
        begin, end = "<!-- table -->\n", "<!-- end of table -->"
        before, _, rest = page.read_text().partition(begin)
        after = rest.partition(end)[2]
        page.write_text("\n".join([before + begin + heading, "", *self.rows(), "", end + after]))


def _row(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"
