"""The workflow `hisq_mesons` through the command line: run, extend, change, mistakes, MILC's pion."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tiny_hisq_mesons import HISQ_MESONS
from tiny_project import ENGINES, TINY, CommandLine, edit, few_candidates, missing, runs_of

from pipeline import At, open_result
from stages.ensemble.configuration import heatbath_configuration
from stages.ensemble.smeared_links import smeared_links
from stages.ensemble.staggered_operator import hisq_operator
from stages.lqcd.analysis.effective_mass import effective_mass, without_oscillation
from stages.lqcd.kernels.dispatch import kernels_of
from stages.lqcd.solvers.named import Solve
from stages.mesons.propagator import staggered_propagator
from stages.mesons.sources import staggered_sources
from stages.mesons.two_point import staggered_two_point
from stages.shared.solver_trials import Eigensolve
from workflows.hisq_mesons.schema import StaggeredSolves

OPERATORS = ("G5-G5", "GX-GX", "GY-GY", "GZ-GZ", "GX-G1", "GY-G1", "GZ-G1")
EXTENTS = (4, 4, 4, 4)


ran, hisq = runs_of("hisq", HISQ_MESONS)


def test_results_are_those_of_the_stages(ran: Path) -> None:
    found = open_result(ran / "store", "mesons").load()
    assert found.correlator.dims == ("config", "source", "operator", "momentum", "time")
    assert tuple(found.operator.values) == OPERATORS
    assert found.momentum.values.tolist() == [[0, 0, 0], [1, 0, 0]]
    assert list(found.direction) == ["x", "y", "z"]
    assert float(found.residual.max()) <= 1e-8 and found.residual.shape == (2, 2, 12)
    with kernels_of("reference"):  # nothing is compiled
        expected = of_stages()
    np.testing.assert_allclose(found.correlator[1, 1], expected, atol=1e-8)
    pion = found.correlator.sel(operator="G5-G5").isel(momentum=0).values
    assert (pion.real > 0).all() and np.abs(pion.imag).max() < 1e-14


@pytest.mark.gpu
def test_a_device_gives_the_numbers_of_the_host() -> None:
    pytest.importorskip("cupy")
    sums = ("GX-G1 + GY-G1", "GX-G1 + GY-G1 - 2 GZ-G1")
    np.testing.assert_allclose(of_stages("cuda", sums), of_stages("cpu", sums), atol=1e-11)


def of_stages(backend: str = "cpu", sums: tuple[str, ...] = ()) -> np.ndarray:
    """Correlators of a source of the second configuration, by the stages as functions."""
    host = At(config="heatbath-1")
    at = At(config="heatbath-1", source="x0y0z0t3", backend=backend)
    gauge = heatbath_configuration(at=host, extents=EXTENTS, beta=6.0, seed=977, sweeps=3, overrelaxation=1)
    links = smeared_links(gauge, at=at, kind="ape", alpha=0.0, steps=0)
    sources = staggered_sources(gauge, links, at=at, operators=OPERATORS)
    dslash = hisq_operator(gauge, at=at, boundary="antiperiodic", naik_epsilon=0.0)
    solved = staggered_propagator(dslash, sources, at=at, mass=0.3, solve=Solve("batched_cg", 1e-12))
    momenta = ((0, 0, 0), (1, 0, 0))
    measured = (*OPERATORS, *sums)
    return staggered_two_point(
        solved, links, at=at, extents=EXTENTS, operators=measured, momenta=momenta
    ).correlator[0]


def test_averages_are_those_of_the_correlators(ran: Path) -> None:
    each, average = (open_result(ran / "store", name).load() for name in ("mesons", "average"))
    of_config = each.correlator.values.real.mean(axis=1)
    np.testing.assert_allclose(average.correlator, of_config.mean(axis=0), rtol=1e-13)
    error = np.abs(of_config[0] - of_config[1]) / 2
    np.testing.assert_allclose(average.correlator_error, error, rtol=1e-7, atol=1e-15)
    words = ("", ", longitudinal", ", transverse")
    expected = ["pion5", *(f"{rho}{w}" for rho in ("rhoi", "rhois") for w in words)]
    assert list(average.channel.values) == expected
    each = of_config.mean(axis=0)[4:]
    for channel, momentum, rows in (
        ("", 0, each),
        (", longitudinal", 1, each[:1]),
        (", transverse", 1, each[1:]),
    ):
        rho, found = rows.mean(axis=0), average.sel(channel=f"rhois{channel}")
        np.testing.assert_allclose(found.channel_correlator[momentum], rho[momentum], rtol=1e-12)
        np.testing.assert_allclose(
            found.effective_mass[momentum], effective_mass(without_oscillation(rho[momentum]))
        )
        assert np.isnan(found.channel_correlator[1 - momentum]).all()
    assert "hisq staggered quarks" in average.attrs["action"]
    assert "4" in average.attrs["not_included"]["normalisation"]


def test_the_report_and_exports(quarkline: CommandLine, hisq: Path) -> None:
    page = (hisq.parent / "report" / "index.html").read_text()
    expected = [*("Meson correlators", "Effective masses", "Solves", "Gauge configurations"), *ENGINES]
    assert re.findall(r"<h2>(.*?)</h2>", page) == expected
    assert "spin-taste operators" in page and "block_cgrq" in page
    columns = np.loadtxt(hisq.parent / "report" / "mesons.txt")
    average = open_result(hisq.parent / "store", "average")
    np.testing.assert_allclose(
        columns[:, 1::2].T.reshape(7, 2, 4), average.correlator, rtol=1e-14, atol=1e-20
    )
    assert quarkline("export", hisq, "--output", "out", "--to", "csv").code == 0
    assert "G5-G5" in (hisq.parent / "out" / "average.csv").read_text()


def test_what_repeats_what(quarkline: CommandLine, hisq: Path) -> None:
    assert missing(quarkline, hisq) == {}
    edit(hisq, ("tolerance: 1.0e-8", "tolerance: 1.0e-8, block: 5, max_iterations: 900"))
    assert missing(quarkline, hisq) == {}
    edit(hisq, ("times: [0, 3]", "times: [0, 1, 3]"))
    assert missing(quarkline, hisq) == {"mesons": 2, "average": 1}
    edit(hisq, ("mass: 0.3", "mass: 0.31"))
    assert missing(quarkline, hisq) == {"mesons": 6, "average": 1}


DEFLATION = "deflation: {vectors: 6, block: 2}\n"


def test_the_eigenvectors_are_those_of_loops(quarkline: CommandLine, hisq: Path) -> None:
    """A file of loops on the same links has the same key of its low modes."""
    edit(hisq, ("solves:", f"{DEFLATION}solves:"))
    assert missing(quarkline, hisq) == {"deflation_space": 2, "spectrum": 2, "mesons": 4, "average": 1}
    loops = hisq.parent / "g2.yaml"
    loops.write_text(TINY)
    edit(loops, ("solves:", f"{DEFLATION}solves:"))
    assert keys_of(quarkline, hisq, "deflation_space") == keys_of(quarkline, loops, "deflation_space")


def keys_of(quarkline: CommandLine, file: Path, node: str) -> set[str]:
    answer = quarkline("plan", file, "--json")
    return {chunk["key"] for chunk in json.loads(answer.out)["missing"] if chunk["node"] == node}


def test_a_chosen_solver_with_low_modes(quarkline, hisq, cluster, quick_trials, monkeypatch):
    """One round measures; the campaign's keys are those of a file that says what was chosen.

    Eigenvectors cost something, unless they are half of those that were searched.
    """
    monkeypatch.setattr(Eigensolve, "of", lambda _, name, *__: -1e6 * ("deflated/2" in name))
    before = open_result(hisq.parent / "store", "mesons").load()
    auto = "{tolerance: 1.0e-8, precision: double-single, solver: auto}"
    most = DEFLATION.replace("6", "auto, most: 8")
    edit(hisq, ("{tolerance: 1.0e-8}", auto), ("solves:", f"{most}solves:"))
    edit(hisq, ("configurations: 2", "configurations: 1"), ("times: [0, 3]", "times: [0]"))
    few_candidates(monkeypatch)
    assert missing(quarkline, hisq) == {"deflation_space": 1, "solver_choice": 1}
    answer = quarkline("run", hisq, "--cluster", cluster)
    found = re.search(r"^solver: (.*?(\w+) (\S+) (\d+)) is the cheapest of ", answer.out, re.MULTILINE)
    assert answer.code == 0 and found, answer.out
    assert found[1].startswith("deflated/2 ") and "; deflation.vectors: 4\n" in answer.out
    assert "with the lowest 1/n of 8 eigenvectors" in (hisq.parent / "report" / "index.html").read_text()
    assert open_result(hisq.parent / "store", "spectrum").eigenvalue.shape == (1, 4)
    assert quarkline("gc", hisq, "--yes").code == 0 and missing(quarkline, hisq) == {}
    page = (hisq.parent / "report" / "tables.txt").read_text()
    assert "# Choice of the solver" in page and re.search(rf"\n{found[1]} .* chosen\n", page)
    choice = open_result(hisq.parent / "store", "solver_choice").load()
    names = {name.rsplit(" ", 1)[0] for name in choice.solver.values}
    lows = ("", "deflated/8 ", "deflated/4 ", "deflated/2 ", "deflated ")
    assert names == {f"{low}block_cgrq double-single" for low in lows}
    assert set(StaggeredSolves.solvers) == {"batched_cg", "block_cgrq"}
    after = open_result(hisq.parent / "store", "mesons").load()
    np.testing.assert_allclose(after.correlator, before.correlator[:1, :1], atol=1e-6)
    named = auto.replace("double-single", found[3]).replace("auto", found[2])
    edit(hisq, (auto, named), (most, DEFLATION.replace("6", "4")))
    assert missing(quarkline, hisq) == {}


def test_deflated_mesons_are_the_same(quarkline: CommandLine, hisq: Path, cluster: str) -> None:
    """With fewer iterations, and the low modes in the report."""
    before = open_result(hisq.parent / "store", "mesons").load()
    edit(hisq, ("solves:", f"{DEFLATION}solves:"))
    assert quarkline("run", hisq, "--cluster", cluster).code == 0
    after = open_result(hisq.parent / "store", "mesons").load()
    np.testing.assert_allclose(after.correlator, before.correlator, atol=1e-6)
    assert float(after.residual.max()) <= 1e-8
    assert after.attrs["low_modes"] == "6 eigenvectors"
    page = (hisq.parent / "report" / "index.html").read_text()
    assert "<h2>Low modes</h2>" in page


@pytest.mark.slow
def test_walls_and_smeared_links(quarkline: CommandLine, hisq: Path, cluster: str) -> None:
    """A corner wall, and noise with smeared links of operators: columns of each, and errors of the noise."""
    edit(
        hisq,
        (", momenta: [[0, 0, 0], [1, 0, 0]]", ""),
        ("kind: point, times: [0, 3]", "kind: corner_wall, times: [1]"),
    )
    assert quarkline("run", hisq, "--cluster", cluster).code == 0
    wall = open_result(hisq.parent / "store", "mesons").load()
    assert list(wall.source.values) == ["t1"] and wall.residual.shape == (2, 1, 12)
    edit(
        hisq,
        ("corner_wall, times: [1]", "random_wall, times: [0, 3], noise: {seed: 5, vectors: 60}, chunk: 60"),
    )
    edit(hisq, ("rhois]", "rhois], links: {kind: stout, steps: 2, rho: 0.1}"))
    assert quarkline("run", hisq, "--cluster", cluster).code == 0
    noisy = open_result(hisq.parent / "store", "mesons").load()
    assert noisy.residual.shape == (2, 120, 7)
    pion = noisy.correlator.sel(operator="G5-G5").values.real[:, :, 0]
    error = pion.std(axis=1) / np.sqrt(120)
    assert (pion > 0).all() and (error < 0.05 * pion.mean(axis=1)).all()


@pytest.mark.slow
def test_milcs_pion(quarkline, tmp_path, cluster, reference_data, expected):
    """The point pion that MILC printed of its 8^4 sample, to the digits printed."""
    values = expected["hisq:pion_l8888"]
    file = tmp_path / "hisq.yaml"
    text = re.sub(
        r"  heatbath:.*\n", f"  files: {reference_data / 'milc' / 'lat.sample.l8888'}\n", HISQ_MESONS
    )
    file.write_text(text)
    edit(
        file,
        ("mass: 0.3", f"mass: {values['values']['mass']}"),
        ("[0, 3]", "[0]"),
        ("[pion5, rhoi, rhois], momenta: [[0, 0, 0], [1, 0, 0]]", "[pion5]"),
        ("1.0e-8", "1.0e-10"),
    )
    assert quarkline("run", file, "--cluster", cluster).code == 0
    made = open_result(tmp_path / "store", "mesons").correlator.values.real.ravel()
    np.testing.assert_allclose(made, values["values"]["corr"], rtol=values["rtol"])
