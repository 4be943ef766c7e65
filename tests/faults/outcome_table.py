"""The table of outcomes: kind of fault by place, and what became of each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
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
    "fuse read": "read",
    "fuse open": "read",
    "fuse lookup": "names and attributes",
    "fuse getattr": "names and attributes",
    "fuse create": "mid-write",
    "fuse write": "mid-write",
    "fuse fsync": "mid-write",
    "fuse link": "commit",
    "fuse mkdir": "commit",
    "fuse unlink": "commit",
    "fuse lock": "locks",
}
"""What the table calls the places of orders; others have their own names."""

BAD = (Verdict.UNCLEAR, Verdict.LOST, Verdict.WRONG, Verdict.HUNG)


@dataclass(frozen=True)
class Record:
    """A file with a line per case, so that the long form may be done in parts; a case's last line counts."""

    path: Path

    def note(self, case: str, strikes: Iterable[dict[str, Any]], verdict: Verdict) -> int:
        """Note the faults of one case, an order that struck several times once; returns how many."""
        shown = [strike for strike in strikes if not strike["kind"].startswith("(")]
        faults = {(s.get("name", f"suite-{k}"), s["kind"], s["place"]) for k, s in enumerate(shown)}
        places = [(kind, PLACES.get(place, place)) for _, kind, place in sorted(faults)]
        with open(self.path, "a") as file:
            file.write(json.dumps({"case": case, "faults": places, "verdict": verdict}) + "\n")
        return len(places)

    def cases(self) -> dict[str, dict[str, Any]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return {entry["case"]: entry for entry in map(json.loads, lines)}


class OutcomeTable:
    """Counts of faults that struck."""

    def __init__(self, cases: Iterable[dict[str, Any]]) -> None:
        self.counts: dict[tuple[str, str], Counter[Verdict]] = {}
        for case in cases:
            for kind, place in case["faults"]:
                self.counts.setdefault((kind, place), Counter())[Verdict(case["verdict"])] += 1

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
