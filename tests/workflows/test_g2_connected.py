"""The workflow `g2_connected` through the command line: run, extend, change, export, low modes of loops."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_g2_connected import CONNECTED
from tiny_project import TINY, CommandLine, edit, missing, run_to_its_end

from pipeline import open_result


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, cluster: str) -> Path:
    """A folder in which `g2.yaml` has run to its end. Only to be copied."""
    folder = tmp_path_factory.mktemp("connected")
    (folder / "g2.yaml").write_text(CONNECTED)
    return run_to_its_end(folder, cluster, "g2.yaml")


@pytest.fixture
def connected(ran: Path, tmp_path: Path) -> Path:
    """A copy of the finished run; its workflow file."""
    shutil.copytree(ran, tmp_path, dirs_exist_ok=True)
    return tmp_path / "g2.yaml"


def test_parts_of_a_correlator(ran: Path) -> None:
    """Of all walls solved again the sloppy ones cancel: C = LL + the mean of fine solves less low modes."""
    light = open_result(ran / "store", "correlator_light").load()
    exact, sloppy, fine = (
        open_result(ran / "store", f"{name}").load()
        for name in ("low_low_light", "walls_light", "walls_light_fine")
    )
    assert list(light.current.values) == ["pion", "local"] and light.correlator.dims[1:] == (
        "current",
        "time",
    )
    assert list(light.operator.values) == ["G5-G5", "GX-GX", "GY-GY", "GZ-GZ"]
    rest = (fine.correlator.values - sloppy.low.values).real.mean(axis=1)
    np.testing.assert_allclose(light.operator_correlator, exact.low_low.values + rest, rtol=1e-12)
    np.testing.assert_allclose(light.correlator[:, 1], light.operator_correlator[:, 1:].mean(axis=1))
    assert np.abs(sloppy.correlator - fine.correlator).max() > 1e-6
    assert (np.sort(sloppy.source_time.values, axis=1) == np.arange(4)).all()
    charm, none = (open_result(ran / "store", f"{name}_charm").load() for name in ("correlator", "walls"))
    assert not charm.low.values.any() and not none.low.values.any() and light.low.values.any()


def test_averages_and_what_they_say(ran: Path) -> None:
    average = open_result(ran / "store", "average").load()
    each = [open_result(ran / "store", f"correlator_{name}").load() for name in ("light", "charm")]
    values = np.stack([one.correlator.values for one in each], axis=1)
    assert list(average.quark.values) == ["light", "charm"]
    np.testing.assert_allclose(average.correlator, values.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(
        average.correlator_error, np.abs(values[0] - values[1]) / 2, rtol=1e-7, atol=1e-14
    )
    np.testing.assert_allclose(average.correlator_samples, values[::-1], rtol=1e-12)
    noise = np.sqrt(np.mean([(one.error.values**2).sum(axis=0) for one in each], axis=0) / 2)
    assert (average.stochastic_error.values > 0).all() and noise.shape == (2, 4)
    for result in (average, *each):
        assert "slice trace" in result.attrs["normalisation"] and "random walls" in result.attrs["sources"]


def test_the_report_and_exports(quarkline: CommandLine, connected: Path) -> None:
    page = (connected.parent / "report" / "index.html").read_text()
    assert re.findall(r"<h2>(.*?)</h2>", page) == [
        "Connected correlators",
        "Estimators",
        "Solves of walls",
        "Low modes",
        "Gauge configurations",
        "Where the time went",
        "Checks against silent errors",
        "Provenance",
    ]
    tables = (connected.parent / "report" / "tables.txt").read_text()
    assert "low modes, fine solves only" in tables and "Estimators of C(t), charm, local" in tables
    columns = np.loadtxt(connected.parent / "report" / "correlator.txt")
    average = open_result(connected.parent / "store", "average")
    np.testing.assert_allclose(columns[:, 1::2].T.reshape(2, 2, 4), average.correlator, rtol=1e-14)
    assert quarkline("export", connected, "--output", "out", "--to", "csv").code == 0
    names = {path.name for path in (connected.parent / "out").iterdir()}
    assert {"average.csv", "correlator_light.csv", "correlator_charm.csv", "low_low_light.csv"} <= names


def test_what_repeats_what(quarkline: CommandLine, connected: Path) -> None:
    """Eigenvectors and meson fields are those of every mass; of another boundary or epsilon they are new."""
    assert missing(quarkline, connected) == {}
    edit(connected, ("walls: 4, chunk: 2", "walls: 6, chunk: 2"))
    more = {f"{name}_{quark}": 2 for name in ("walls", "correlator") for quark in ("light", "charm")}
    assert missing(quarkline, connected) == {**more, "average": 1}
    edit(connected, ("walls: 6, chunk: 2", "walls: 4, chunk: 2"), ("mass: 0.1", "mass: 0.2"))
    light = {"walls_light": 4, "walls_light_fine": 4, "low_low_light": 2, "correlator_light": 2, "average": 1}
    assert missing(quarkline, connected) == light
    edit(connected, ("mass: 0.2", "mass: 0.1, naik_epsilon: 0.01"))
    other = {"deflation_space": 2, "spectrum": 2, "meson_fields": 2}
    assert missing(quarkline, connected) == {**light, **other}
    edit(connected, ("mass: 0.1, naik_epsilon: 0.01", "mass: 0.1"))
    momenta = "low_modes: {momenta: [[1, 0, -1]]}\nnoise"
    edit(connected, ("noise", momenta))
    assert missing(quarkline, connected) == {"meson_fields_p1_0_-1": 2, "low_low_light_p1_0_-1": 2}
    (connected.parent / "ranks.txt").write_text("0 1\n8\n")
    edit(connected, (momenta, "low_modes: {ranks: ranks.txt}\nnoise"))
    assert "ranks of 8 modes are different, 0 to 7, got [0, 1, 8]" in quarkline("plan", connected).err
    (connected.parent / "ranks.txt").write_text("0 1\n4\n")
    del light["walls_light_fine"]
    assert missing(quarkline, connected) == {**light, "meson_fields": 2}
    edit(connected, ("low_modes: {ranks: ranks.txt}\n", ""), ("antiperiodic", "periodic"))
    assert missing(quarkline, connected)["deflation_space"] == 2


@pytest.mark.slow
def test_a_public_comparison(tmp_path: Path, reference_data: Path, cluster: str) -> None:
    """LL of another code, of its links and the 100 modes whose ranks it lists."""
    numbers = json.loads((Path(__file__).parents[1] / "reference/hvp/connected.json").read_text())
    (tmp_path / "ranks.txt").write_text(" ".join(f"{rank:.0f}" for rank in numbers["lambda_ranks"]["value"]))
    folder = reference_data / "hvp"
    files = f'{{fat: "{folder}/fat4444a.ildg.20", long: "{folder}/lng4444a.ildg.20"}}'
    changes = {
        CONNECTED.splitlines()[2]: f'  files: "{folder}/l4444a.ildg.20"',
        "antiperiodic}": f"antiperiodic, files: {files}}}",
        "{light: {mass: 0.1}, charm: {mass: 0.6, naik_epsilon: -0.2}}": "{light: {mass: 0.002426}}",
        "local]": "local, one_link]",
        "vectors: 8, block: 2}": "vectors: 336, tolerance: 1.0e-12}\nlow_modes: {ranks: ranks.txt}",
    }
    (tmp_path / "g2.yaml").write_text(CONNECTED)
    edit(tmp_path / "g2.yaml", *changes.items())
    found = open_result(run_to_its_end(tmp_path, cluster, "g2.yaml") / "store", "low_low_light").load()
    for label in ("G5-G5", "GX-GX", "GX-G1"):
        expected = numbers[f"LL/l/{label.replace('-', '_')}"]["value"]
        values = found.low_low.sel(operator=label).values[0]
        np.testing.assert_allclose(values, expected, rtol=0, atol=2e-9)


def test_the_eigenvectors_are_those_of_loops(quarkline: CommandLine, connected: Path) -> None:
    loops = connected.parent / "loops.yaml"
    loops.write_text(TINY)
    edit(loops, ("solves:", "deflation: {vectors: 8, block: 2}\nsolves:"))
    assert "deflation_space" not in missing(quarkline, loops)


@pytest.mark.parametrize(
    ("error", "said", "walls"),
    [
        ("9.0", r"4 walls, 4 fine: error .*e-0\d, target 9.00e\+00: target met", 0),
        ("1.0e-3", "next 12 walls", 8),
    ],
)
def test_a_target_adds_walls(quarkline, connected, error, said, walls):
    """By the measured variances and costs, up to a limit."""
    target = f"target: {{error: {error}, quark: light, current: local, window: [1, 2], most_walls: 12}}\n"
    edit(connected, ("store: store", f"{target}store: store"))
    assert missing(quarkline, connected).get("walls_light", 0) == walls
    assert re.search(said, quarkline("plan", connected).out)


@pytest.mark.slow
def test_a_chosen_solver(quarkline: CommandLine, connected: Path, cluster: str, quick_trials: None) -> None:
    edit(
        connected, ("  block: 12", "  block: 12\n  solver: auto"), ("configurations: 2", "configurations: 1")
    )
    answer = quarkline("run", connected, "--cluster", cluster)
    assert answer.code == 0 and "is the cheapest of" in answer.out
    assert json.loads(quarkline("plan", connected, "--json").out)["missing"] == []
