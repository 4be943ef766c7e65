"""Names of the workflows that are installed, which shells and `--help` ask for: nothing heavy is imported."""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import EntryPoint, entry_points

OWN = {
    "g2_connected": "workflows.g2_connected.build",
    "g2_disconnected": "workflows.g2_disconnected.build",
    "g2_hvp": "workflows.g2_hvp.build",
    "hisq_mesons": "workflows.hisq_mesons.build",
    "laph_mesons": "workflows.laph_mesons.build",
    "mesons": "workflows.mesons.build",
}
"""Name in a file's `workflow`: the module whose `WORKFLOW` is its definition."""
GROUP = "quarkline.workflows"
"""Of entry points by which other packages register theirs: name = module, or module:definition."""


def workflow_names() -> list[str]:
    """All that a file may name, those of this package first."""
    return list(dict.fromkeys([*OWN, *sorted(entry.name for entry in registered())]))


def registered() -> tuple[EntryPoint, ...]:
    """Entry points of other packages' workflows."""
    return _registered(tuple(sys.path))


@cache
def _registered(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """They are looked for once: reading what all packages register takes 20 ms."""
    return tuple(entry_points(group=GROUP))
