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

from pipeline import Plan, Store, plan
from workflows.catalogue import load_project
from workflows.parameter_file import read_parameter_file

SHIPPED = Path(__file__).parents[2] / "workflows"
GOLDEN = Path(__file__).parent / "golden" / "forecasts.json"
FILES = ("g2_disconnected", "g2_low_modes", "mesons", "hisq_mesons", "laph_mesons")
LARGE = {"heatbath": {"extents": [24, 24, 24, 48]}}
LEVELS = [{"aggregate": [4, 4, 4, 4], "vectors": 16}, {"aggregate": [2, 2, 2, 2], "vectors": 20}]
BASIS = [[["Gamma5"], ["0.5 Identity[+x] - 0.5 Identity[-x]"]]]
INSERTIONS = {"separations": [3, 5], "momenta": [[0, 0, 0], [0, 0, 1]], "displacements": ["", "+x"]}
TARGET = {"correlator": 1e-5, "window": [2, 6], "eigenvectors": [8, 16]}
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "g2_disconnected": {
        "naive": {"links": {"action": "naive", "naik_epsilon": None}},
        "batched": {"solves": {"solver": "batched_cg", "precision": "double"}},
        "narrow": {"solves": {"block": 8}, "ensemble": LARGE},
        "auto": {"solves": {"solver": "auto"}},
        "deflated auto": {"solves": {"solver": "auto"}, "deflation": {"vectors": 12, "precision": "half"}},
        "half": {"deflation": {"vectors": 96, "block": 12, "precision": "half"}, "ensemble": LARGE},
        "double": {"deflation": {"vectors": 20, "precision": "double"}, "solves": {"precision": "double"}},
        "resampled": {"analysis": {"jackknife_bin": 2, "bootstrap": {"samples": 40, "seed": 3}}},
        "exact": {
            "ensemble": {"heatbath": {"extents": [6, 6, 6, 6]}},
            "exact": True,
            "noise": {"dilution": None},
        },
    },
    "g2_low_modes": {
        "single": {"deflation": {"precision": "single"}, "ensemble": LARGE},
        "target": {
            "target": TARGET,
            "noise": {"vectors": None},
            "alternatives": None,
            "solves": {"fine": {"tolerance": 1e-10}},
        },
        "auto": {"solves": {"solver": "auto"}},
    },
    "mesons": {
        "multigrid": {"solves": {"solver": "multigrid"}, "ensemble": LARGE, "multigrid": {"levels": LEVELS}},
        "gcr": {"solves": {"solver": "gcr", "block": 5, "precision": "double"}},
        "auto": {"solves": {"solver": "auto"}},
        "kept": {"keep_propagators": True, "sources": {"times": [0, 4], "chunk": 2}},
        "walls": {
            "sources": {"kind": "z2_wall", "noise": {"seed": 7, "vectors": 3}, "chunk": 3},
            "mesons": {"momenta": [[0, 0, 0]]},
        },
        "smeared": {
            "sources": {"kind": "smeared", "smearing": {"width": 2.0, "steps": 8}},
            "quark": {"stout": {"rho": 0.1, "steps": 2}, "csw": None, "csw_r": 1.1, "csw_t": 1.2},
        },
        "smeared links": {
            "sources": {
                "kind": "smeared",
                "smearing": {
                    "width": 2.0,
                    "steps": 8,
                    "links": {"kind": "ape", "steps": 3, "alpha": 0.5},
                },
            },
        },
        "wall": {
            "sources": {"kind": "wall"},
            "mesons": {"momenta": [[0, 0, 0]]},
            "solves": {"solver": "cgnr"},
        },
    },
    "hisq_mesons": {
        "points": {
            "sources": {"kind": "point", "noise": None, "chunk": 2},
            "mesons": {"operators": ["pion5", "rhoi"], "momenta": [[0, 0, 0], [0, 0, 1]]},
            "solves": {"solver": "batched_cg", "precision": "double"},
        },
        "corner": {
            "sources": {"kind": "corner_wall", "noise": None},
            "mesons": {"links": {"kind": "ape", "steps": 2, "alpha": 0.5}},
            "ensemble": LARGE,
        },
    },
    "laph_mesons": {
        "multigrid": {"solves": {"solver": "multigrid"}, "ensemble": LARGE},
        "auto": {"solves": {"solver": "auto"}},
        "noise": {
            "noise": {"kind": "z4", "seed": 5, "vectors": 3, "dilution": {"eigenvector": "interlace-4"}}
        },
        "noisy auto": {"noise": {"kind": "z2", "seed": 5, "vectors": 2}, "solves": {"solver": "auto"}},
        "insertions": {"insertions": INSERTIONS, "sources": {"chunk": 2}},
        "single": {
            "distillation": {"vectors": 40, "precision": "single", "slices": 4, "tolerance": 1e-5},
            "smearing": {"kind": "hyp", "steps": 2, "rho": None, "alpha": [0.6, 0.3]},
            "operators": {"bases": BASIS},
            "ensemble": LARGE,
        },
        "insertions by multigrid": {
            "insertions": INSERTIONS,
            "solves": {"solver": "multigrid", "block": 12},
            "ensemble": LARGE,
        },
    },
}


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
