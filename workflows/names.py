"""Names of the workflows that are installed, which shells and `--help` ask for: nothing heavy is imported."""

from __future__ import annotations

from importlib.metadata import entry_points

OWN = {
    "g2_disconnected": "workflows.g2_disconnected.build",
    "hisq_mesons": "workflows.hisq_mesons.build",
    "laph_mesons": "workflows.laph_mesons.build",
    "mesons": "workflows.mesons.build",
}
"""Name in a file's `workflow`: the module whose `WORKFLOW` is its definition."""
GROUP = "quarkline.workflows"
"""Of entry points by which other packages register theirs: name = module, or module:definition."""


def workflow_names() -> list[str]:
    """All that a file may name, those of this package first."""
    return list(dict.fromkeys([*OWN, *sorted(entry.name for entry in entry_points(group=GROUP))]))
