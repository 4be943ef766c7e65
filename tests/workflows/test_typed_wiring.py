"""Sections of files are joined to stages by type: a type checker sees a wrong field before it is built."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WIRED = """\
from functools import partial

from pipeline import Workflow
from workflows import Nothing  # attr-defined
from stages.loops.current_loops import current_loops, exact_loops
from stages.mesons.propagator import propagator
from workflows.g2_disconnected.schema import G2Parameters
from workflows.mesons.schema import MesonParameters


def wired(g2: G2Parameters, mesons: MesonParameters, workflow: Workflow) -> None:
    solve = g2.solves.to(1e-8)
    workflow.add(partial(exact_loops, mass=g2.masses.light, solve=solve, current_links=g2.current.links))
    workflow.add(partial(exact_loops, mass=g2.masses.charm, solve=solve))  # attr-defined
    workflow.add(partial(exact_loops, masse=g2.masses.light, solve=solve))  # call-arg
    workflow.add(partial(exact_loops, mass=g2.masses, solve=solve))  # arg-type
    workflow.add(partial(current_loops, mass=g2.masses.light, noise=g2.noise, solve=solve))  # arg-type
    workflow.add(partial(propagator, solve=mesons.solves.to(1e-9)))
    workflow.add(partial(propagator, solve=mesons.solves))  # arg-type
"""


@pytest.mark.house
def test_mistakes_in_wiring_are_seen_by_a_type_checker(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    file = tmp_path / "wired.py"
    file.write_text(WIRED)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir"]
    done = subprocess.run(
        [*command, str(tmp_path / "cache"), str(file)], cwd=ROOT, capture_output=True, text=True
    )
    marks = (re.search(r"# ([\w-]+)$", line) for line in WIRED.splitlines())
    expected = {(number, mark[1]) for number, mark in enumerate(marks, 1) if mark}
    found = re.findall(r"wired\.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    assert {(int(number), code) for number, code in found} == expected, done.stdout + done.stderr


@pytest.mark.house
def test_every_node_is_wired_by_type() -> None:
    """Parameters stand in a `partial` of the stage, none in a dictionary and none beside the place."""
    offenders = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in sorted((ROOT / "workflows").rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and ast.unparse(call.func).endswith("workflow.add")
        if {keyword.arg for keyword in call.keywords} - {"place"}
    ]
    assert not offenders, "\n".join(["functools.partial(stage, ...) holds parameters:", *offenders])
