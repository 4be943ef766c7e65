"""Mistakes in a workflow file: each one message with its line and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_project import TINY

from stages.base.errors import InputError
from stages.loops.solver_trials import TrialSolves
from stages.lqcd.solvers.defect_correction import DefectCorrection
from stages.lqcd.solvers.frame import ReliableUpdates
from stages.lqcd.solvers.named import Solve
from workflows.g2_disconnected.schema import G2Parameters, SolvesSection
from workflows.hisq_mesons.schema import StaggeredSolves
from workflows.parameter_file import read_parameter_file
from workflows.shared.quark_sections import QuarkSolves


def read(tmp_path: Path, text: str) -> G2Parameters:
    path = tmp_path / "g2.yaml"
    path.write_text(text)
    return G2Parameters.read(read_parameter_file(path))


def test_all_problems_are_listed_together_in_order_of_line(tmp_path: Path) -> None:
    text = (
        TINY.replace("beta: 6.0", "beta: -6")
        .replace("light: 0.1", "lite: 0.1")
        .replace("chunk: 2", "chunk: two")
    )
    with pytest.raises(InputError) as caught:
        read(tmp_path, text)
    assert str(caught.value).splitlines() == [
        f"{tmp_path / 'g2.yaml'}: 3 problems",
        "  - `ensemble.heatbath.beta` (line 3) is -6, expected a number above 0.0",
        "  - unknown key `lite` in `masses` (line 5): did you mean `light`?",
        "  - `noise.chunk` (line 10) is 'two', expected a whole number",
    ]


def test_what_fits_a_lattice(tmp_path: Path) -> None:
    """An exact trace is for tiny ones; one that fits no memory is still checked."""
    exact = TINY + "exact: true\n"
    assert read(tmp_path, exact).exact
    with pytest.raises(InputError, match=r"`exact` \(line 20\): .* 8x8x8x8 needs 12288 solves"):
        read(tmp_path, exact.replace("[4, 4, 4, 4]", "[8, 8, 8, 8]"))

    huge = TINY.replace("[4, 4, 4, 4]", "[4096, 4096, 4096, 4096]")
    assert read(tmp_path, huge).noise.dilution.scheme().displacement == 2
    with pytest.raises(InputError, match="does not divide every extent of the lattice 4096x4096x4096x4096"):
        read(tmp_path, huge.replace("displacement: 2", "displacement: 3"))


@pytest.mark.parametrize("section", [SolvesSection, StaggeredSolves, QuarkSolves])
def test_limits_of_iterations_in_files_fit_light_masses(section: type) -> None:
    """51737 were needed at m = 0.0005."""
    assert section.model_fields["max_iterations"].default >= 100_000


@pytest.mark.parametrize("options", [ReliableUpdates, DefectCorrection, Solve, TrialSolves])
def test_limits_of_iterations_fit_light_masses(options: type) -> None:
    assert options.__dataclass_fields__["max_iterations"].default >= 100_000
