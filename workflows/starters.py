"""Commented parameter files to start from: those of this package, and those that other packages bring."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from stages.base.errors import InputError, suggestion
from workflows.names import OWN, workflow_names

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


def starter(name: str, path: Path, patterns: Sequence[str] = ()) -> str:
    """Text of a new file at `path`; of a workflow for gauge configurations of these patterns, if any.

    Raises:
        InputError: nothing to start from is named so, or another package's workflow has none.
    """
    if source := cluster_files().get(name):
        if patterns:
            raise InputError(f"{name!r} is about a cluster, which has no configurations: leave --files out")
        return source.read_text(encoding="utf-8").replace(f"workflows/clusters/{source.name}", str(path))
    if name not in (known := starter_names()):
        known = [*known, *cluster_files()]
        raise InputError(f"there is no file {name!r} to start from{suggestion(name, known)}")
    text = _source(name).read_text(encoding="utf-8").replace(f"workflows/{name}.yaml", str(path))
    if not patterns:
        return text
    written = json.dumps(patterns[0] if len(patterns) == 1 else list(patterns), ensure_ascii=False)
    changed, found = ENSEMBLE.subn(lambda _: f"ensemble:\n  files: {written}\n", text, count=1)
    if not found:
        raise InputError(f"the file of {name!r} has no section `ensemble` that files could stand in")
    return changed


def _source(name: str) -> Path:
    from workflows.catalogue import definition_of

    if (own := OWN_FILES / f"{name}.yaml").is_file():
        return own
    if brought := definition_of(name).starter:
        return brought
    raise InputError(f"workflow {name!r} brings no file to start from: write one by its own documentation")
