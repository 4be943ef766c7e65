"""The section `deflation` of a workflow file: what is planned, computed once, kept and refused."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from tiny_project import TINY, CommandLine, edit, missing, run_to_its_end

from pipeline import Store, open_result, verify
from pipeline.reading.account import accounts
from stages.loops.costs import eigensolve_bytes
from stages.lqcd.lattice.geometry import Lattice

AUTO = "{vectors: auto, most: 5000}"
SECTION = ("solves:", "deflation: {vectors: 6, block: 2, precision: single}\nsolves:")


@pytest.fixture(scope="module")
def with_spaces(finished: Path, tmp_path_factory: pytest.TempPathFactory, cluster: str) -> Path:
    """The finished tiny run, with deflation spaces. Only to be copied."""
    folder = tmp_path_factory.mktemp("spaces")
    shutil.copytree(finished, folder, dirs_exist_ok=True)
    edit(folder / "g2.yaml", SECTION)
    return run_to_its_end(folder, cluster)


@pytest.fixture
def deflated(with_spaces: Path, tmp_path: Path) -> Path:
    shutil.copytree(with_spaces, tmp_path, dirs_exist_ok=True)
    return tmp_path / "g2.yaml"


def test_the_space_is_planned_and_leaves_the_keys_of_undeflated_loops_alone(quarkline, project):
    edit(project, SECTION)
    text = quarkline("plan", project).out
    assert re.search(r"deflation_space +deflation_space +2 +0 +2 +new", text)
    assert re.search(r"spectrum +spectrum +2 +0 +2 +new", text)

    edit(project, ("current:", "estimator: {low_modes: true}\ncurrent:"))
    edit(project, ("current:", "alternatives: {plain: {deflation: false}}\ncurrent:"))
    new = missing(quarkline, project)
    assert new["loops_light"] == 2 * 2
    assert not {"plain_loops_light", "plain_loops_strange", "plain_loops_light_fine"} & set(new)


def test_the_space_is_computed_once_for_all_masses(quarkline: CommandLine, deflated: Path) -> None:
    assert missing(quarkline, deflated) == {}
    edit(deflated, ("light: 0.1", "light: 0.07"), ("block: 2, ", "block: 4, "))
    assert "loops_light" in missing(quarkline, deflated)
    assert not {"deflation_space", "spectrum"} & set(missing(quarkline, deflated))

    edit(deflated, ("configurations: 2", "configurations: 5"))
    found = missing(quarkline, deflated)
    assert (found["deflation_space"], found["spectrum"]) == (3, 3)


@pytest.mark.parametrize(
    "change",
    [
        ("boundary: antiperiodic", "boundary: periodic"),
        ("boundary: antiperiodic", "boundary: antiperiodic, naik_epsilon: -0.1"),
        ("beta: 6.0", "beta: 6.1"),
        ("precision: single}", "precision: half}"),
        ("vectors: 6", "vectors: 8"),
    ],
)
def test_another_operator_has_another_space(quarkline, deflated, change):
    edit(deflated, change)
    assert missing(quarkline, deflated)["deflation_space"] == 2


def test_deflated_loops_are_the_same_with_fewer_iterations(deflated: Path, finished: Path) -> None:
    for name in ("loops_light_fine", "loops_strange_fine"):
        loops, plain = (open_result(path / "store", name) for path in (deflated.parent, finished))
        np.testing.assert_allclose(loops.current, plain.current, rtol=0, atol=1e-7)
        np.testing.assert_allclose(loops.condensate, plain.condensate, rtol=1e-8)
    fewer, more = (
        [sum(iterations) for iterations in light.statistics("iterations")]
        for path in (deflated.parent, finished)
        for light in accounts(Store(path / "store"), "g2_disconnected")
        if light.name == "loops_light_fine"
    )
    assert sum(fewer) < sum(more)


def test_spectrum_and_vectors_are_results(quarkline: CommandLine, deflated: Path) -> None:
    folder = deflated.parent
    space = open_result(folder / "store", "deflation_space")
    assert space.vectors.dims == ("config", "time", "site", "colour", "eigenvector", "part")
    small = open_result(folder / "store", "spectrum").load()
    np.testing.assert_array_equal(small.eigenvalue, space.eigenvalue)
    assert (np.diff(small.eigenvalue) >= 0).all() and (small.eigenvalue > 0).all()
    assert not verify(Store(folder / "store")).damaged
    assert quarkline("export", deflated, "--format", "hdf5").code == 0
    with h5py.File(next(folder.rglob("spectrum.h5"))) as file:
        np.testing.assert_array_equal(file["eigenvalue"], small.eigenvalue)


def test_the_report_shows_the_spectrum(deflated: Path) -> None:
    folder = deflated.parent / "report"
    assert "<h2>Low modes</h2>" in (folder / "index.html").read_text()
    text = (folder / "tables.txt").read_text()
    low = open_result(deflated.parent / "store", "spectrum").eigenvalue.values[:, 0]
    for config, value in enumerate(low):
        assert re.search(rf"config=heatbath-{config} +{value:.4g} ", text)
    assert re.search(r"tolerance +largest residual / largest eigenvalue", text)
    store = Store(deflated.parent / "store")
    for key in store.keys("deflation_space"):
        record = store.record("deflation_space", key)
        relative = record["statistics"]["residual_before_rounding"] / record["statistics"]["window"][1]
        assert relative <= record["parameters"]["tolerance"] and f"{relative:.1e}" in text

    for chunk in (deflated.parent / "store" / "deflation_space").glob("*/*"):
        assert {piece.name for piece in (chunk / "vectors").glob("c.*")} == {
            f"c.{t}.0.0.0.0" for t in range(4)
        }


@pytest.mark.parametrize(("key", "section"), [("vectors", "{vectors: 5000}"), ("most", AUTO)])
def test_too_little_memory_names_the_vectors_that_fit(key, section, quarkline, tmp_path, monkeypatch):
    room = 30_000_000_000
    monkeypatch.setattr("pipeline.running.clusters.local.MEMORY_LIMIT", room)
    file = tmp_path / "g2.yaml"
    file.write_text(TINY)
    edit(file, ("[4, 4, 4, 4]", "[32, 32, 32, 32]"), ("solves:", f"deflation: {section}\nsolves:"))
    edit(file, *([("solver: block_cgrq", "solver: auto")] if section == AUTO else []))
    answer = quarkline("plan", file)
    found = re.search(
        rf"a task of node 'deflation_space' needs .*fits with `deflation.{key}: (\d+)`", answer.out
    )
    assert found, answer.out
    vectors, lattice = int(found[1]), Lattice((32, 32, 32, 32))
    assert eigensolve_bytes(lattice, vectors, 8) <= room
    assert eigensolve_bytes(lattice, vectors + 1, 8) > room
