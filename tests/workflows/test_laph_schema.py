"""Mistakes in a file of the workflow `laph_mesons`: one clear message, nothing started."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tiny_laph import LAPH
from tiny_project import CommandLine, edit, missing

import workflows
from stages.lqcd.lattice.geometry import Lattice
from workflows.laph_mesons.build import WORKFLOW
from workflows.laph_mesons.schema import LaphParameters
from workflows.parameter_file import read_parameter_file
from workflows.shared.definition import Project
from workflows.shared.ensemble import Configurations

NOISE = "noise: {kind: z4, seed: 5, vectors: 2}\nsolves: {"
INSERTIONS = "insertions: {separations: [2], momenta: [[0, 0, 0]], displacements: ['', '+x-y']}\nsolves: {"


@pytest.fixture
def laph(tmp_path: Path) -> Path:
    file = tmp_path / "laph.yaml"
    file.write_text(LAPH)
    return file


def test_sources_of_one_chunk_have_their_currents_together(quarkline: CommandLine, laph: Path) -> None:
    edit(laph, ("solves: {", INSERTIONS), ("times: [0, 2]", "times: [0, 2], chunk: 2"))
    to_compute = missing(quarkline, laph)
    assert to_compute["perambulator"] == to_compute["current_insertion"] == 2  # of each configuration one


def test_solvers_are_measured_on_several_sources_of_one_chunk(quarkline: CommandLine, laph: Path) -> None:
    edit(laph, ("solver: cgnr", "solver: auto"), ("times: [0, 2]", "times: [0, 2], chunk: 2"))
    assert missing(quarkline, laph) == {"configuration": 1, "laplace_eigenvectors": 2, "solver_choice": 1}


def test_a_block_has_no_more_columns_than_its_sources(laph: Path) -> None:
    """16 of a source, with four eigenvectors: what a task needs does not grow with blocks beyond."""
    edit(laph, ("solves: {", INSERTIONS))
    parameters = LaphParameters.read(read_parameter_file(laph))
    ensemble = Configurations(("a", "b"), Lattice((4, 4, 4, 4)))
    wide = parameters.model_copy(update={"solves": parameters.solves.model_copy(update={"block": 64})})
    plain, widened = (Project(WORKFLOW, each, ensemble).workflow.nodes for each in (parameters, wide))
    for name in ("perambulator", "current_insertion"):
        assert plain[name].cost == widened[name].cost


def test_alternatives_in_the_shipped_file_work_when_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shipped = (Path(workflows.__file__).parent / "laph_mesons.yaml").read_text()
    typed = re.sub(r"^  bases: .*\n  # bases:", "  bases:", shipped, flags=re.MULTILINE)
    typed = re.sub(
        r"^# (insertions:|  (?:separations|momenta|displacements):)", r"\1", typed, flags=re.MULTILINE
    )
    assert typed.count("\n") == shipped.count("\n") - 1
    Path("typed.yaml").write_text(typed)
    parameters = LaphParameters.read(read_parameter_file(Path("typed.yaml")))
    assert parameters.operators.bases[1] == (("Gamma5", "Gamma5[+x+x] + Gamma5[-x-x]"),)
    assert parameters.insertions is not None and parameters.insertions.model_dump() == {
        **{"separations": (4, 6), "momenta": ((0, 0, 0), (1, 0, 0)), "displacements": ("", "+x")}
    }
