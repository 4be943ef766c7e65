"""The house rules, checked by their tools: lint, format, types, and imports that point downwards only."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("pipeline", "stages", "workflows")
TOOLS = {
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "types": ["mypy"],
    "imports": ["lint-imports"],
}


@pytest.mark.parametrize("rule", TOOLS)
def test_tool_finds_nothing(rule: str) -> None:
    program, *arguments = TOOLS[rule]
    installed = Path(sys.executable).parent / program
    if not installed.exists():
        pytest.fail(f"{program} is not installed beside {sys.executable}: pip install -e '.[test]'")
    done = subprocess.run([installed, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(TOOLS[rule])}\n{done.stdout}{done.stderr}"


def test_no_import_circle() -> None:
    """Not behind TYPE_CHECKING and not inside functions either: every import statement counts."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    graph = {name: imported_by(path) & modules.keys() - {name} for name, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other: {' <- '.join(error.args[1])}")


def imported_by(path: Path) -> set[str]:
    """Names of the modules that a file imports, wherever in it; `from a import b` is `a.b` if that is one."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {alias.name for alias in node.names if is_module(node.module, alias.name)}
            names |= {f"{node.module}.{name}" for name in submodules}
            if len(submodules) < len(node.names):
                names.add(node.module)
    return names


def is_module(package: str, name: str) -> bool:
    folder = ROOT.joinpath(*package.split("."))
    return (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()
