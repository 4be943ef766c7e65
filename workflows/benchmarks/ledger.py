"""Earlier figures of a machine of the same kind, with which those of a benchmark are compared.

A ledger is what `quarkline bench --json` printed, of one release after the other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from typing import Any

from stages.base.errors import InputError
from workflows.benchmarks.machine import Machine
from workflows.benchmarks.speed import Speed

SLOWER = 1.05
"""A line that takes more than this times its earlier time is slower."""

CONDITIONS = ("family", "kernel", "lattice", "precision", "rhs", "unit")
"""Fields of a line that must be equal for its times to be comparable."""

Line = tuple[str | int, ...]


@dataclass(frozen=True)
class Ledger:
    """The last figures of a file: picoseconds per site and right-hand side, by the conditions of a line."""

    file: Path
    times: dict[Line, float]

    def ratio(self, speed: Speed) -> float | None:
        """Time over the earlier time of the same line; None where there is none."""
        earlier = self.times.get(_line(vars(speed)))
        return speed.picoseconds / earlier if earlier else None

    def verdict(self, speeds: Sequence[Speed]) -> tuple[str, bool]:
        """Words on what the comparison gave, and whether a line is slower.

        Raises InputError where no line of the file was measured.
        """
        ratios = {line: ratio for line in speeds if (ratio := self.ratio(line))}
        if not ratios:
            raise InputError(
                f"{self.file} has no line of what was measured here: give the --lattice, --rhs, --precision "
                "and --only of its lines"
            )
        slower = [line for line, ratio in ratios.items() if ratio > SLOWER]
        counts = f"{len(ratios)} lines compared with {self.file}, {len(speeds) - len(ratios)} are new"
        if not slower:
            return f"{counts}; none takes more than {SLOWER:g} times as long", False
        named = "".join(
            f"\n  {line.family} {line.kernel}, {line.precision}, {line.rhs} right-hand sides: "
            f"{ratios[line]:.3f} times as long"
            for line in slower
        )
        return f"{counts}; {len(slower)} take more than {SLOWER:g} times as long:{named}", True


def read_ledger(file: Path, machine: Machine) -> Ledger:
    """The last figure of each line of `quarkline bench --json`, made on a machine of the same name.

    Raises InputError for a file that is none, and for figures of another machine.
    """
    documents = _documents(file)
    here = [each for each in documents if each["machine"] == machine.name]
    if not here:
        names = ", ".join(dict.fromkeys(each["machine"] for each in documents))
        raise InputError(
            f"{file} has figures of {names}, and this machine is {machine.name}: compare only times of one "
            "kind of machine"
        )
    return Ledger(file, {_line(each): each["picoseconds"] for document in here for each in document["lines"]})


def _documents(file: Path) -> list[dict[str, Any]]:
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read: {error}") from error
    decoder, documents, position = json.JSONDecoder(), [], 0
    try:
        while text[position:].strip():
            position += len(text[position:]) - len(text[position:].lstrip())
            document, position = decoder.raw_decode(text, position)
            documents.append(_checked(document))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not what `quarkline bench --json` prints: {error}") from error
    if not documents:
        raise InputError(f"{file} is empty: fill it by quarkline bench --json > {file}")
    return documents


def _checked(document: Any) -> dict[str, Any]:
    """A document with what a comparison needs. Raises ValueError where that is not there."""
    if not isinstance(document, dict) or not isinstance(document.get("machine"), str):
        raise ValueError("a document has no name of a machine")
    if not isinstance(lines := document.get("lines"), list):
        raise ValueError("a document has no list of lines")
    names = {each.name for each in fields(Speed)}
    for line in lines:
        if missing := names - set(line if isinstance(line, dict) else ()):
            raise ValueError(f"a line lacks {', '.join(sorted(missing))}")
        time = line["picoseconds"]
        if not isinstance(time, int | float) or not 0 < time < inf:
            raise ValueError(f"picoseconds of a line are {time!r}")
        if not all(isinstance(each, str | int) for each in _line(line)):
            raise ValueError(f"{', '.join(CONDITIONS)} of a line are {_line(line)}")
    return document


def _line(facts: dict[str, Any]) -> Line:
    return tuple(facts[name] for name in CONDITIONS)
