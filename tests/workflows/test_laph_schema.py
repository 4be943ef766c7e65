"""Mistakes in a file of the workflow `laph_mesons`: one clear message, nothing started."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tiny_laph import LAPH
from tiny_project import CommandLine, edit, missing, refused

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


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "vectors: 4",
            "vectors: 193",
            "`distillation.vectors` (line 6): 193 vectors, but a time slice of",
        ),
        ("vectors: 4", "vectors: 0", "`distillation.vectors` (line 6) is 0, expected"),
        (
            "vectors: 4,",
            "vectors: 4, precision: single,",
            "`distillation.tolerance` (line 6): residuals in single precision stay above about 6e-06 of the",
        ),
        ("slices: 2", "slices: 3", "3 slices together must be even and divide the 4 of 4x4x4x4"),
        ("vectors: 4,", "vectors: 4, precision: half,", "expected 'double' or 'single'"),
        ("rho: 0.1", "alpha: 0.5", "stout smearing takes rho and nothing else, got alpha"),
        ("kind: stout", "kind: hyp", "hyp smearing takes alpha and nothing else, got rho"),
        ("times: [0, 2]", "times: [0, 4]", "`sources.times` (line 7): 4 is none of 0 to 3"),
        ("times: [0, 2]", "times: [0, 0]", "`sources.times` (line 7): names 0 twice: leave one out"),
        ("[1, 0, 0]", "[1, 0, 0.5]", "`operators.momenta` (line 9) is 0.5, expected a whole"),
        ("[1, 0, 0]", "[0, 0, 0]", "`operators.momenta` (line 9): names [0, 0, 0] twice: leave one out"),
        ("[[Gamma5]]", "[[Gama5]]", "`operators.bases` (line 9): "),
        ("[[Gamma5]]", "[Gamma5, Gamma5]", "`operators.bases` (line 9): a basis is a list of rows"),
        ("[[Gamma5]]", "[['Gamma5[+w]']]", "`operators.bases` (line 9): "),
        ("[[Gamma5]]", "kaon", "no basis is named 'kaon': take pion, rho, or rows of operators"),
        ("[GammaX]", "[GammaX, SigmaXT]", "rows have one length and no operator twice"),
        ("t0: 0", "t0: 3", "`operators.t0` (line 9): 3 is none of 0 to 2"),
        ("solver: cgnr", "solver: cg", "`solves.solver` (line 8) is 'cg', expected"),
        (
            "solves: {solver: cgnr,",
            "multigrid: {levels: [{aggregate: [3, 2, 2, 2]}]}\nsolves: {solver: auto,",
            "`multigrid.levels` (line 8): aggregates of 3 sites do not divide the 4 sites of the 4x4x4x4",
        ),
        ("solves: {", NOISE.replace("vectors: 2", "vectors: 1"), "`noise.vectors` (line 8) is 1, expected"),
        (
            "solves: {",
            NOISE.replace("2}", "2, dilution: {eigenvector: interlace-3}}"),
            "`noise.dilution` (line 8): dilution.eigenvector = interlace-3 does not divide the 4",
        ),
        (
            "solves: {",
            NOISE.replace("2}", "2, dilution: {time: interlace-2}}"),
            "`sources.times` (line 7): 2 is none of 0 to 1",
        ),
        (
            "solves: {",
            INSERTIONS.replace("[2]", "[4]"),
            "`insertions.separations` (line 8): 4 is none of 1 to 3",
        ),
        (
            "solves: {",
            INSERTIONS.replace("[2]", "[0]"),
            "`insertions.separations` (line 8): 0 is none of 1 to 3",
        ),
        (
            "solves: {",
            INSERTIONS.replace("[2]", "[2, 2]"),
            "`insertions.separations` (line 8): names 2 twice",
        ),
        ("solves: {", INSERTIONS.replace("[2]", "[]"), "`insertions.separations` (line 8)"),
        ("solves: {", INSERTIONS.replace("[0, 0, 0]", "[0, 0, 0.5]"), "is 0.5, expected a whole"),
        ("solves: {", INSERTIONS.replace("[0, 0, 0]", f"[{10**20}, 0, 0]"), "expected at most 1000000"),
        ("[1, 0, 0]]", f"[{-(10**20)}, 0, 0]]", "expected at least -1000000"),
        (
            "solves: {",
            INSERTIONS.replace("+x-y", "+t"),
            "`insertions.displacements` (line 8): a displacement",
        ),
        (
            "solves: {",
            INSERTIONS.replace("solves: {", NOISE),
            "`insertions` (line 8): need a source for every eigenvector and spin",
        ),
    ],
)
def test_mistakes(quarkline: CommandLine, laph: Path, before: str, after: str, message: str) -> None:
    edit(laph, (before, after))
    refused(quarkline("run", laph), message)
    assert not (laph.parent / "store").exists()


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


def test_the_section_that_the_example_leaves_out(tmp_path: Path) -> None:
    example = (Path(workflows.__file__).parent / "laph_mesons.yaml").read_text()
    file = tmp_path / "laph.yaml"
    file.write_text(re.sub(r"^# (insertions:|  \w+: )", r"\1", example, flags=re.MULTILINE))
    section = LaphParameters.read(read_parameter_file(file)).insertions
    assert section is not None and section.model_dump() == {
        "separations": (4, 6),
        "momenta": ((0, 0, 0), (1, 0, 0)),
        "displacements": ("", "+x"),
    }


def test_alternatives_in_the_shipped_file_work_when_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert parameters.insertions is not None and parameters.insertions.displacements == ("", "+x")
