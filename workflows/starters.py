"""Commented parameter files to start from: those of this package, and those that other packages bring."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stages.base.errors import InputError, suggestion
from workflows.names import OWN, workflow_names
from workflows.parameter_file import parameters_in
from workflows.yaml_text import Location, reader

ENSEMBLE = re.compile(r"^ensemble:.*\n(?:[ \t#].*\n|\n(?=[ \t]))*", re.MULTILINE)
"""The section with the lines that are indented below it."""


OWN_FILES = Path(__file__).parent
CLUSTERS = OWN_FILES / "clusters"


def starter_names() -> list[str]:
    """Workflows that have a file to start from, and variants of them, this package's first."""
    own = sorted(path.stem for path in OWN_FILES.glob("*.yaml"))
    return [*own, *(name for name in workflow_names() if name not in OWN)]


def cluster_files() -> dict[str, Path]:
    """Files about clusters to start from, by name."""
    return {path.stem: path for path in sorted(CLUSTERS.iterdir()) if path.suffix in (".yaml", ".sh")}


def starter(name: str, path: Path, patterns: Sequence[str] = ()) -> tuple[str, str]:
    """Text of a new file at `path`, and what was changed in it to fit the configurations.

    patterns: of gauge configurations, for a workflow. Their headers are read: numbers that their lattice does
    not have are halved until it does, and files of one name in several folders get labels of their own.

    Raises:
        InputError: nothing to start from is named so, or another package's workflow has none; a pattern
            matches nothing, or files are no configurations of one lattice that the workflow can take.
    """
    if source := cluster_files().get(name):
        if patterns:
            raise InputError(f"{name!r} is about a cluster, which has no configurations: leave --files out")
        return source.read_text(encoding="utf-8").replace(f"workflows/clusters/{source.name}", str(path)), ""
    if name not in (known := starter_names()):
        known = [*known, *cluster_files()]
        raise InputError(f"there is no file {name!r} to start from{suggestion(name, known)}")
    text = _source(name).read_text(encoding="utf-8").replace(f"workflows/{name}.yaml", str(path))
    if not patterns:
        return text, ""
    from workflows.shared.ensemble import LABELS, matching, telling_apart  # with the library: a second

    written = json.dumps(patterns[0] if len(patterns) == 1 else list(patterns), ensure_ascii=False)
    labels = telling_apart({path for pattern in patterns for path in matching(pattern)})
    line = f'  labels: "{labels}"\n' if labels and labels != LABELS[0] else ""
    changed, found = ENSEMBLE.subn(lambda _: f"ensemble:\n  files: {written}\n{line}", text, count=1)
    if not found:
        raise InputError(f"the file of {name!r} has no section `ensemble` that files could stand in")
    return _fitted(path, changed, f"--files {' --files '.join(patterns)}")


def _fitted(path: Path, text: str, option: str) -> tuple[str, str]:
    """The text with numbers that the lattice of its configurations has, and which they are."""
    from workflows.catalogue import definition_of
    from workflows.shared.ensemble import configurations

    options: dict[Location, str] = {("ensemble", "files"): option}
    halved: dict[Location, None] = {}
    while True:
        file = replace(parameters_in(path, text), options=options)
        parameters = definition_of(file.values["workflow"]).schema.read(file)
        ensemble = configurations(file, parameters.ensemble, "take a pattern that leaves it out")
        problems = list(parameters.problems_with(ensemble.lattice, len(ensemble.labels)))
        places = dict.fromkeys(location for location, _ in problems)
        fitted = _with_halves(text, places)
        if fitted == text:
            try:
                file.refuse(problems)
            except InputError as error:
                remedy = "nothing is written; without --files init writes the file to change by hand"
                raise InputError(f"{error}; {remedy}") from None
            names = ", ".join(".".join(map(str, place)) for place in halved)
            return text, f"changed to fit {ensemble.lattice}: {names}" if names else ""
        text, halved = fitted, halved | places


def _with_halves(text: str, locations: Iterable[Location]) -> str:
    """The text with half the numbers at these places, comments where they were."""
    for location in locations:
        node = reader().compose(text)
        for key in location:
            inside = [pair for pair in node.value if isinstance(pair, tuple)]
            node = next((value for name, value in inside if name.value == key), node)
        before, rest = text[node.start_mark.index : node.end_mark.index], text[node.end_mark.index :]
        try:
            value = json.loads(before)
        except ValueError:  # no number, and no list of such
            continue
        if (half := _half(value)) != value:
            after = json.dumps(half)
            after = after.ljust(len(before)) if re.match(" +#", rest) else after
            text = text[: node.start_mark.index] + after + rest
    return text


def _half(value: Any) -> Any:
    """Half of a number, and of those in a list, each once."""
    if isinstance(value, list):
        halves = [_half(each) for each in value]
        return [half for number, half in enumerate(halves) if half not in halves[:number]]
    return value // 2 if type(value) is int else value


def _source(name: str) -> Path:
    from workflows.catalogue import definition_of

    if (own := OWN_FILES / f"{name}.yaml").is_file():
        return own
    if brought := definition_of(name).starter:
        return brought
    raise InputError(f"workflow {name!r} brings no file to start from: write one by its own documentation")
