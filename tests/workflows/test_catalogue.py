"""Workflows of other packages: found by their entry points, and refused with one clear message."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError
from tiny_mesons import MESONS
from tiny_project import CommandLine, refused

from stages.base.errors import nearest, suggestion
from workflows import FileSection
from workflows.starters import starter

OWN = '''
"""A workflow outside of quarkline: that of mesons, under another name."""
from workflows.mesons.build import MesonsWorkflow

class OwnWorkflow(MesonsWorkflow):
    name = "own_mesons"

WORKFLOW = OwnWorkflow
'''
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Leaves on the path what installing a package would: a module and the metadata of its entry points."""

    def installed(package: str, entry: str, code: str = OWN) -> None:
        site = tmp_path / f"site-{package}"
        metadata = site / f"{package}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (site / f"{package}.py").write_text(code)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[quarkline.workflows]\n{entry}\n")
        monkeypatch.syspath_prepend(str(site))

    return installed


def plan_of(quarkline: CommandLine, folder: Path, name: str):
    file = folder / "file.yaml"
    file.write_text(MESONS.replace("workflow: mesons", f"workflow: {name}"))
    return quarkline("plan", file)


@pytest.mark.parametrize("value", ["outside_a", "outside_a:WORKFLOW"])
def test_a_workflow_of_another_package(quarkline, tmp_path, install, value):
    install("outside_a", f"own_mesons = {value}")
    answer = plan_of(quarkline, tmp_path, "own_mesons")
    assert answer.code == 0 and "own_mesons" in answer.out and "meson_two_point" in answer.out


def test_suggestions_know_it(quarkline: CommandLine, tmp_path: Path, install: Install) -> None:
    install("outside_b", "own_mesons = outside_b")
    refused(plan_of(quarkline, tmp_path, "own_meson"), "did you mean `own_mesons`?")
    refused(
        plan_of(quarkline, tmp_path, "xyz"),
        "known: g2_connected, g2_disconnected, g2_hvp, hisq_mesons, laph_mesons, mesons, own_mesons",
    )


def test_a_name_that_quarkline_or_another_package_has(quarkline, tmp_path, install):
    install("outside_c", "mesons = outside_c")
    answer = plan_of(quarkline, tmp_path, "mesons")
    refused(answer, "'mesons' is registered by quarkline and by package outside_c", "rename")
    assert plan_of(quarkline, tmp_path, "laph_meson").code == 2  # files of other workflows are not concerned
    for name in ("outside_d", "outside_e"):
        install(name, f"own_mesons = {name}")
    answer = plan_of(quarkline, tmp_path, "own_mesons")
    refused(answer, "package outside_d", "package outside_e", "uninstall")


@pytest.mark.parametrize(
    ("value", "code", "message"),
    [
        ("no_such_module", OWN, "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ("outside_f:MISSING", OWN, "cannot be loaded: AttributeError"),
        ("outside_f", "1 / 0", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("outside_f", "x = 1", "is no workflow: the entry point must name"),
        ("outside_f", OWN.replace("own_mesons", "other"), "calls itself 'other'"),
    ],
)
def test_a_broken_entry_point(quarkline, tmp_path, install, value, code, message):
    install("outside_f", f"own_mesons = {value}", code)
    refused(plan_of(quarkline, tmp_path, "own_mesons"), "'own_mesons' of package outside_f", message)
    sys.modules.pop("outside_f", None)


def test_keys_of_no_sense_are_no_tracebacks() -> None:
    """As the fuzzer found them: a key `null` beside a misspelt word."""
    assert nearest("workflow", [None, "workfow"]) == "workfow" and nearest("x", [None]) is None
    assert suggestion("x", {None, "abc"}) == "; known: None, abc"


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("g2_connected", "quarks.light.mass", "1.0e300"),
        ("g2_disconnected", "masses.strange", "1.0e-200"),
        ("hisq_mesons", "quark.mass", "1" + 200 * "0"),
        ("mesons", "quark.theta", "[0, 0, 0, -1.0e31]"),
        ("laph_mesons", "quark.csw", "-1.0e300"),
        ("g2_hvp", "analysis.scale.a_fm", "1.0e-160"),
        ("mesons", "sources.times", "[1" + 40 * "0" + "]"),
    ],
)
def test_numbers_whose_squares_are_no_doubles(quarkline, tmp_path, name, key, value):
    answer = quarkline("plan", starter_file(tmp_path, name), "--set", f"{key}={value}")
    refused(answer, f"`{key}` (--set ", "take 0, or 1e-30 to 1e+30 in magnitude")


@pytest.mark.parametrize("value", ["1.0e-30", "1.0e30"])
@pytest.mark.parametrize("name", ["g2_connected", "hisq_mesons"])
def test_numbers_whose_squares_are_doubles(quarkline, tmp_path, name, value):
    key = {"g2_connected": "quarks.light.mass", "hisq_mesons": "quark.mass"}[name]
    answer = quarkline("plan", starter_file(tmp_path, name), "--forecast", "--set", f"{key}={value}")
    assert answer.code == 0 and "node-hours" in answer.out and "nan" not in answer.out


@pytest.mark.parametrize(
    ("head", "key", "value", "message"),
    [
        (
            "",
            "quark:",
            "quark:\n  theta:\n    - 0.0\n    - 0.0\n    - 1.0e31\n    - 0.0",
            "`quark.theta` (line 21): 1e+31",
        ),
        (
            "%YAML 1.1\n---\n",
            "seed: 20261",
            f"seed: {':'.join(['59'] * 3000)}",
            "8999 digits: at most 300 are read",
        ),
        ("", "store:", "cluster: {kind: slurm, cores: 1000000000000}\nstore:", "expected at most 1000000"),
        ("", "store:", "cluster: {kind: slurm, memory: 1e31GB}\nstore:", "'1e31GB' is no size of memory"),
    ],
)
def test_numbers_that_nobody_means(quarkline, tmp_path, head, key, value, message):
    file = starter_file(tmp_path, "mesons")
    file.write_text(head + file.read_text().replace(key, value, 1))
    refused(quarkline("plan", file), message)


def starter_file(folder: Path, name: str) -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(starter(name, file)[0])
    return file


class Weights(FileSection):
    of: dict[str, tuple[float, ...]]


def test_numbers_within_lists_and_mappings_have_the_same_limits() -> None:
    assert Weights(of={"a": (0.0, 1e30, -1e-30)})
    for number in (1e31, 1e-31, -1e31):
        with pytest.raises(ValidationError, match=f"{number!r} has squares".replace("+", r"\+")):
            Weights(of={"a": (1.0, number)})
