"""The house rules, checked by their tools: lint, format, types, and imports that point downwards only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
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
