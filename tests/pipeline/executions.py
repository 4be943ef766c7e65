"""What the toy stages executed, seen from the tests."""

from __future__ import annotations

from pathlib import Path

import toy_stages as toys


class Executions:
    """What stage functions ran since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = len(toys.executions(path))

    def new(self) -> dict[str, int]:
        """Number of executions per stage since the last call."""
        lines = toys.executions(self._path)
        fresh, self._seen = lines[self._seen :], len(lines)
        names = [line["stage"] for line in fresh]
        return {name: names.count(name) for name in sorted(set(names))}
