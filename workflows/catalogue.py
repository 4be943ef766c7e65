"""The workflows that a file may name, and what each of them makes of its file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from quarkline.errors import suggestion
from workflows.parameter_file import read_parameter_file

if TYPE_CHECKING:
    from types import ModuleType

    from pipeline import Plan, Store, Workflow
    from pipeline.reading.report import Section
    from stages.lqcd.kernels.dispatch import Kernels

BUILDERS = {
    "g2_disconnected": "workflows.g2_disconnected.build",
    "laph_mesons": "workflows.laph_mesons.build",
    "mesons": "workflows.mesons.build",
}
"""Name in a file's `workflow`: the module whose `prepare(file)` returns the `Project`."""


@dataclass(frozen=True)
class Project:
    """A workflow file made ready: what to compute, where it goes, how it is reported."""

    title: str
    workflow: Workflow
    store: Path
    report: Path
    results: Sequence[str]
    """Nodes that `quarkline export` writes."""
    sections: Callable[[Store], Sequence[Section]]
    """What the report shows beside the engine's own sections."""
    texts: Callable[[Store], Mapping[str, str]]
    """Text files to stand beside the page, by name."""
    rehearse: Callable[[Kernels, ModuleType], Iterator[tuple[int, int]]]
    """What a run asks of kernels for arrays of a library, briefly; yields parts done and parts in all."""
    follow: Callable[[Plan, Store], Step] | None = None
    """What comes after a complete plan of this workflow, where it is one of several rounds."""


@dataclass(frozen=True)
class Step:
    """What the results of a round lead to."""

    text: str
    """For people, a line."""
    met: bool
    """Whether the target is met."""
    project: Project | None = None
    """The next round; None if the target is met, or cannot be within its limits."""


def load_project(path: Path) -> Project:
    """Read, check and build the workflow in a YAML file.

    Raises:
        InputError: a mistake in the file or in what it refers to.
    """
    file = read_parameter_file(path)
    name = file.values.get("workflow")
    if not isinstance(name, str) or name not in BUILDERS:
        given = (
            f"`workflow` (line {file.line(('workflow',))}) is {name!r}" if name else "missing key `workflow`"
        )
        raise file.error(f"{given}{suggestion(name or '', BUILDERS, mark='`')}")
    return import_module(BUILDERS[name]).prepare(file)
