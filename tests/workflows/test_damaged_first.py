"""`solver: auto` where the first configuration is damaged: solvers are measured on the first sound one."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_mesons import MESONS
from tiny_project import TINY, CommandLine, edit

from pipeline import Outcome, Store
from pipeline.running.failures import Failure
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.lattice.formats import write_ildg
from stages.lqcd.lattice.geometry import Lattice
from workflows.rounds import Rounds

TRIALS = ("solver_trials", "solver_choice")
"""Stages."""


def damage(path: Path) -> bytes:
    """Flip a bit of a file; the file as it was."""
    good = path.read_bytes()
    bad = bytearray(good)
    bad[len(bad) // 2] ^= 4
    path.write_bytes(bad)
    return good


@pytest.fixture(params=[TINY, MESONS], ids=TRIALS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A workflow file on conf.1, conf.2 and conf.3, the solver open."""
    lattice = Lattice((4, 4, 4, 4))
    for number in (1, 2, 3):
        name = f"conf.{number}.ildg"
        write_ildg(tmp_path / name, thermalised(lattice, 6.0, number, name, 2, 1), lattice, 64)
    text = re.sub(r"  heatbath: .*\n", "  files: conf.*.ildg\n", request.param)
    text = re.sub(r"solver: \w+", "solver: auto", text)
    (tmp_path / "file.yaml").write_text(text)
    return tmp_path / "file.yaml"


def trials_of(file: Path) -> int:
    """Configurations that solvers were measured on."""
    store = Store(file.parent / "store")
    return sum(len(store.keys(name)) for name in TRIALS)


@pytest.mark.parametrize(
    ("errors", "stopped", "elsewhere"),
    [
        (["conf.1.ildg: checksum", "conf.1.ildg: checksum"], "", True),
        (["conf.1.ildg: checksum", "it did not converge"], "", False),
        (["conf.1.ildg: checksum"], "interrupted", False),
        ([], "", False),
    ],
)
def test_solvers_are_measured_elsewhere_where_all_that_failed_is_a_file(errors, stopped, elsewhere):
    ensemble = SimpleNamespace(files={"conf.1": Path("conf.1.ildg")})
    project = SimpleNamespace(
        ensemble=ensemble, trial_configuration="conf.1", on_next_configuration=lambda: "other"
    )
    failures = tuple(Failure("n", {}, error) for error in errors)
    outcome = Outcome("run", "w", {}, failures, stopped)
    rounds = SimpleNamespace(outcomes=[outcome], project=project)
    assert Rounds._beside_damaged_file(rounds) == ("other" if elsewhere else None)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_rest_is_measured(quarkline: CommandLine, files: Path, cluster: str) -> None:
    good = damage(files.parent / "conf.1.ildg")
    answer = quarkline("run", files, "--cluster", cluster)
    assert answer.code == 1 and "Traceback" not in answer.err
    assert "conf.1.ildg cannot be read: solvers are measured on conf.2.ildg instead" in answer.out
    assert re.search(r"^solver: [\w -]+ is the cheapest of ", answer.out, re.MULTILINE)
    assert "report (2 of 3 configurations): " in answer.out
    assert trials_of(files) == 1
    (files.parent / "conf.1.ildg").write_bytes(good)
    answer = quarkline("run", files, "--cluster", cluster)
    assert answer.code == 0 and "\nreport: " in answer.out
    assert trials_of(files) == 1, "the choice stays that of conf.2.ildg"


def test_nothing_is_sound(quarkline: CommandLine, files: Path, cluster: str) -> None:
    """Each file is named once, and no solver is chosen."""
    for number in (1, 2, 3):
        damage(files.parent / f"conf.{number}.ildg")
    answer = quarkline("run", files, "--cluster", cluster)
    assert answer.code == 1 and "solver: " not in answer.out and "Traceback" not in answer.err
    assert answer.out.count("solvers are measured on conf.") == 2
    assert len(re.findall(r"^failed: .*conf\.\d\.ildg: .*checksum", answer.out, re.MULTILINE)) == 3


@pytest.mark.slow
def test_another_failure_is_not_tried_elsewhere(quarkline: CommandLine, files: Path, cluster: str) -> None:
    few = {
        "{solver: auto, tolerance: 1.0e-6": "{solver: auto, max_iterations: 1, tolerance: 1.0e-14",
        "  solver: auto\n": "  solver: auto\n  max_iterations: 1\n",
    }
    edit(files, *(change for change in few.items() if change[0] in files.read_text()))
    answer = quarkline("run", files, "--cluster", cluster)
    assert answer.code == 1 and "instead" not in answer.out
    assert not trials_of(files)
