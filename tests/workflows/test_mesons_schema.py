"""Mistakes in a file of the workflow `mesons`: one clear message, nothing started."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_mesons import MESONS
from tiny_project import CommandLine, edit, refused


@pytest.fixture
def mesons(tmp_path: Path) -> Path:
    file = tmp_path / "mesons.yaml"
    file.write_text(MESONS)
    return file


SOURCES = "{kind: point, times: [0, 2]}"


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("kappa: 0.11", "kappa: 0.11, mass: 0.1", "`quark` (line 4): give either `kappa` or `mass`"),
        ("kappa: 0.11, ", "", "`quark` (line 4): give either `kappa` or `mass`"),
        ("kappa: 0.11", "kappa: 0", "kappa must be positive (1/8 is free and massless), got 0"),
        ("kappa: 0.11", "mass: -4.5", "must be larger than -4, got -4.5"),
        ("csw: 1.2", "csw: 1.2, csw_t: 1", "give either `csw`, or `csw_r` and `csw_t`"),
        ("csw: 1.2", "csw_t: 1", "`csw_r` and `csw_t` belong together"),
        ("antiperiodic", "open", "expected 'periodic', 'antiperiodic' or 'dirichlet'"),
        ("[0, 2]", "[0, 4]", "`sources.times` (line 5): a source at t = 4 is outside the lattice 4x4x4x4"),
        ("[0, 2]", "[0, 0]", "`sources.times` (line 5): names 0 twice: leave one out"),
        ("[0, 2]", "[]", "`sources.times` (line 5) is [], expected at least one value"),
        ("[0, 2]", "[-1]", "`sources.times` (line 5): a source at t = -1 is outside the lattice 4x4x4x4"),
        ("[1, 0, 0]", "[0, 0, 0]", "`mesons.momenta` (line 7): names [0, 0, 0] twice: leave one out"),
        ("[1, 0, 0]", "[1, 0, 0.5]", "mesons.yaml: `mesons.momenta` (line 7) is 0.5, expected a whole"),
        ("[0, 2]", "[0], points: [[0, 7, 0]]", "`sources.points` (line 5): a source at y = 7 is outside"),
        ("kind: point", "kind: spot", "`sources.kind` (line 5) is 'spot', expected 'point', 'smeared'"),
        ("kind: point", "kind: smeared", "sources of kind smeared need `smearing`"),
        ("kind: point", "kind: z2_wall", "sources of kind z2_wall need `noise`"),
        (
            "kind: point",
            "kind: smeared, smearing: {width: 1, steps: 2, links: {kind: ape, steps: 2, rho: 0.1}}",
            "`sources.smearing.links` (line 5): ape smearing takes alpha and nothing else, got rho",
        ),
        (
            "kind: point",
            "kind: smeared, smearing: {width: 1, steps: 2, links: {kind: hex, steps: 2}}",
            "`sources.smearing.links.kind` (line 5) is 'hex', expected 'stout', 'ape' or 'hyp'",
        ),
        ("[0, 2]", "[0], noise: {seed: 3}", "`sources.noise` (line 5): is not valid for sources of kind"),
        (
            "kind: point",
            "kind: wall",
            "a wall source projects to zero momentum, and [1, 0, 0] would be",
        ),
        ("solver: cgnr", "solver: cg", "`solves.solver` (line 6) is 'cg', expected"),
        ("[1, 0, 0]", "[1, 0]", "expected 3 values"),
        (
            "solver: cgnr, tolerance: 1.0e-6}",
            "solver: auto, tolerance: 1.0e-6}\nmultigrid: {levels: [{aggregate: [3, 2, 2, 2]}]}",
            "`multigrid.levels` (line 7): aggregates of 3 sites do not divide the 4 sites of the 4x4x4x4",
        ),
        (
            "solver: cgnr, tolerance: 1.0e-6}",
            "solver: multigrid, tolerance: 1.0e-6}\nmultigrid: "
            "{levels: [{aggregate: [2, 2, 2, 2], vectors: 97}]}",
            "97 near-null vectors, but an aggregate of 16 sites of the 4x4x4x4 grid has 96 components",
        ),
        (
            "store: store",
            "store: store\nmultigrid: {levels: [{aggregate: [2, 2, 2, 2], vector: 4}]}",
            "unknown key `vector` in `multigrid.levels` (line 9): did you mean `vectors`?",
        ),
        (
            "store: store",
            "store: store\nmultigrid: {levels: [{aggregate: [2, 2, 2, 2], steps: 0}]}",
            "mesons.yaml: `multigrid.levels.steps` (line 9) is 0, expected at least 1",
        ),
        (
            SOURCES,
            "{kind: file, files: '*.npy', chunk: 2}",
            "`sources.chunk` (line 5): sources in files are solved for one at a time",
        ),
        (SOURCES, "{kind: file, files: '*.npy'}", "no file matches '*.npy', looking from"),
        ("workflow: mesons", "workflow: meson", "is 'meson': did you mean `mesons`?"),
        ("store: store", "store: report", "'report' lies in the store 'report'"),
        ("report: report", "report: report\nanalysis: {jackknife_bin: 2}", "leave fewer than two bins: take"),
    ],
)
def test_refused_before_anything_starts(
    quarkline: CommandLine, mesons: Path, before: str, after: str, message: str
) -> None:
    edit(mesons, (before, after))
    refused(quarkline("run", mesons), message)
    assert not (mesons.parent / "store").exists()


def test_several_mistakes_are_named_together(quarkline: CommandLine, mesons: Path) -> None:
    edit(mesons, ("kind: point", "kind: wall"), ("report: report", "report: store/report"))
    refused(quarkline("plan", mesons), "2 problems", "zero momentum", "lies in the store")


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4, 4, 4, 4, 4, 3, 12), None),
        ((4, 4, 4, 4, 4, 3, 4), None),
        ((4, 4, 4, 4, 4, 3), "a.npy has 1 columns, but mesons take 12 or 4"),
        ((6, 4, 4, 4, 4, 3, 12), "but a source on 4x4x4x4 is complex (4, 4, 4, 4, 4, 3)"),
    ],
)
def test_sources_in_files(
    quarkline: CommandLine, mesons: Path, shape: tuple[int, ...], message: str | None
) -> None:
    np.save(mesons.parent / "a.npy", np.ones(shape, complex))
    edit(mesons, (SOURCES, "{kind: file, files: '*.npy'}"))
    answer = quarkline("plan", mesons)
    if message:
        refused(answer, message)
    else:
        assert answer.code == 0 and "7 chunks" in answer.out


def test_sources_in_files_that_are_one_or_nothing(quarkline: CommandLine, mesons: Path) -> None:
    for folder, value in (("first", 1), ("second", 0)):
        (mesons.parent / folder).mkdir()
        np.save(mesons.parent / folder / "a.npy", np.full((4, 4, 4, 4, 4, 3, 4), value, complex))
    edit(mesons, (SOURCES, "{kind: file, files: '*/a.npy'}"))
    refused(quarkline("plan", mesons), "first/a.npy", "second/a.npy", "have one name", "rename one")
    edit(mesons, ("*/a.npy", "second/a.npy"))
    refused(quarkline("plan", mesons), "second/a.npy: a source is zero everywhere")
