"""Keys of chunks and what tasks are said to cost stay as they were in all shipped workflows and variants.

`python tests/workflows/test_forecasts.py` writes the file that they are compared with; that is right where a
forecast or a key was to change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline import Plan, Store, plan
from workflows.catalogue import load_project
from workflows.parameter_file import read_parameter_file

SHIPPED = Path(__file__).parents[2] / "workflows"
GOLDEN = Path(__file__).parent / "golden" / "forecasts.json"
FILES = ("g2_disconnected", "g2_connected", "g2_low_modes", "mesons", "hisq_mesons", "laph_mesons")
VARIANTS: dict[str, dict[str, dict[str, Any]]] = YAML(typ="safe").load(
    Path(__file__).with_name("forecast_variants.yaml")
)


def merged(values: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """A file's values with `changes`, section by section; None takes a key out."""
    changed = dict(values) if isinstance(values, dict) else {}
    for name, change in changes.items():
        changed[name] = merged(changed.get(name), change) if isinstance(change, dict) else change
    return {name: value for name, value in changed.items() if value is not None}


def texts() -> Iterator[tuple[str, str]]:
    """The name and text of each file; JSON is YAML, too."""
    for name in FILES:
        values = read_parameter_file(SHIPPED / f"{name}.yaml").values
        yield name, json.dumps(values)
        for variant, changes in VARIANTS[name].items():
            yield f"{name}, {variant}", json.dumps(merged(values, changes))


def forecast(text: str, folder: Path) -> dict[str, Any]:
    """Costs of each node, those of the plan, and what stands for the keys of all its chunks."""
    (folder / "file.yaml").write_text(text)
    project = load_project(folder / "file.yaml")
    planned = plan(project.workflow, Store(folder / "store"), backend="cuda")
    return {
        "nodes": sorted([n.stage.name, *costs(n)] for n in project.workflow.nodes.values()),
        "plan": [planned.memory, planned.stored, len(planned.chunks)],
        "keys": digest(planned),
    }


def costs(node: Any) -> list[Any]:
    return [node.cost.memory, node.cost.device_memory, node.cost.stored]


def digest(planned: Plan) -> str:
    return sha256("".join(sorted(chunk.key for chunk in planned.chunks)).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", [name for name, _ in texts()])
def test_forecasts_and_keys_stay(name: str, tmp_path: Path) -> None:
    assert forecast(dict(texts())[name], tmp_path) == json.loads(GOLDEN.read_text())[name]


if __name__ == "__main__":
    with TemporaryDirectory() as place:
        written = {name: forecast(text, Path(place)) for name, text in texts()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in written.items())
    GOLDEN.write_text("{\n" + lines + "\n}\n")
