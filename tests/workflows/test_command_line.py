"""The command itself: help, exit codes, quick start, the README's example."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from tiny_project import CommandLine

from workflows.catalogue import load_project
from workflows.command import PANELS, summary
from workflows.commands.options import seconds

ROOT = Path(__file__).parents[2]
COMMANDS = [name for names in PANELS.values() for name in names]


def test_help_names_every_command(quarkline: CommandLine) -> None:
    answer = quarkline("--help")
    assert answer.code == 0
    assert all(f" {name} " in answer.out for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_explains_itself(quarkline: CommandLine, command: str) -> None:
    answer = quarkline(command, "--help")
    assert answer.code == 0 and len(answer.out) > 300
    assert f"Example: quarkline {command}" in answer.out


@pytest.mark.parametrize(
    ("file", "text"),
    [("workflows/__init__.py", ""), ("stages.py", "raise ImportError"), ("pipeline/x.py", "")],
)
def test_packages_of_others_are_named(tmp_path: Path, file: str, text: str) -> None:
    """Packages and modules that Python finds before quarkline's; a folder without `__init__` hides none."""
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    command = [sys.executable, "-P", ROOT / "quarkline.py", "--version"]
    path = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, cwd=tmp_path, env=path, capture_output=True, text=True, check=False)
    if file == "pipeline/x.py":
        assert done.returncode == 0 and done.stdout.startswith("quarkline ")
        return
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert str(tmp_path / file) in done.stderr and "an environment of its own" in done.stderr


HEAVY = (
    *("numba", "dask", "matplotlib", "zarr", "numpy", "cupy"),
    *("pipeline.store.store", "workflows.catalogue"),
)


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys; from workflows.command import main\n"
        f"for command in {[[], *([name] for name in COMMANDS)]}:\n"
        "    main([*command, '--help'])\n"
        f"    assert not (heavy := {{*{HEAVY}}} & {{*sys.modules}}), f'{{command}}: {{heavy}}'"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, check=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_line_of_help_is_the_docstrings(command: str) -> None:
    function = getattr(import_module(f"workflows.commands.{command}"), command)
    assert summary(command) == inspect.getdoc(function).splitlines()[0]


def test_what_help_leaves_out_is_there_for_whoever_imports_it() -> None:
    program = (
        "from workflows.command import main; main(['run', '--help']); main(['plan', '--what']); "
        "from pipeline import Store, plan; from workflows import catalogue, computing; "
        "from workflows.commands.run import carry_out; "
        "print(Store, plan, catalogue.load_project, computing.carry_out is carry_out)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "Blank" not in (last := done.stdout.splitlines()[-1]) and last.endswith("True")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "none.yaml", "--time-limit", "1h"], "no such workflow file"),
        (["run", "none.yaml", "--store", "--help"], "--help stands where"),
        (["run", "none.yaml", "--check", "2"], "is no share"),
    ],
)
def test_options_are_read_in_a_process_of_their_own(arguments: list[str], told: str) -> None:
    """As users call it: no module of a command has been imported before."""
    program = f"from workflows.command import main; raise SystemExit(main({arguments}))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and told in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["rnu"], ["run"], ["plan", "--what"], ["check"]])
def test_misuse_of_the_command(quarkline: CommandLine, arguments: list[str]) -> None:
    answer = quarkline(*arguments)
    assert answer.code == 2 and "Usage" in answer.err and "Traceback" not in answer.err


@pytest.mark.parametrize(
    ("text", "value"),
    [("90", 90), ("90s", 90), ("45m", 2700), ("1h30m", 5400), ("2d", 172800), ("01:30:00", 5400)],
)
def test_durations(text: str, value: float) -> None:
    assert seconds(text) == value


def test_the_shipped_workflows_are_valid() -> None:
    nodes = load_project(ROOT / "workflows" / "g2_low_modes.yaml").workflow.nodes
    assert [node.name for node in nodes["low_modes"].inputs] == ["deflation"]
    assert [node.name for node in nodes["plain_noise_loops_split_even"].inputs] == ["operator"]
    assert [node.name for node in nodes["correlator"].inputs] == ["all_modes"]
    assert len(nodes["probed_loops_split_even"].over["probe"]) == 16

    project = load_project(ROOT / "workflows" / "g2_disconnected.yaml")
    nodes = project.workflow.nodes
    assert len(nodes["configuration"].over["config"]) >= 4
    assert set(nodes["loops_light_fine"].over["noise"]) < set(nodes["loops_light"].over["noise"])
    shared = {name: value for name, value in nodes["loops_light"].parameters.items() if name != "mass"}
    assert shared == {
        name: value for name, value in nodes["loops_strange"].parameters.items() if name != "mass"
    }
