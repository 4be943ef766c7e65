"""The workflow `mesons` through the command line: run, extend, change, keep, report, export."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tiny_mesons import MESONS
from tiny_project import ENGINES, CommandLine, edit, missing, runs_of

from pipeline import At, open_result
from stages.ensemble.configuration import heatbath_configuration
from stages.ensemble.smeared_links import smeared_links
from stages.ensemble.wilson_operator import wilson_operator
from stages.lqcd.kernels.dispatch import kernels_of
from stages.lqcd.solvers.named import Solve
from stages.lqcd.spectroscopy.gammas import CHANNELS, NAMES
from stages.mesons.propagator import propagator
from stages.mesons.sources import smeared_sources
from stages.mesons.two_point import meson_two_point

PION = NAMES.index("Gamma5")


ran, mesons = runs_of("mesons", MESONS)


def test_results_have_names(ran: Path) -> None:
    found = open_result(ran / "store", "mesons")
    assert found.correlator.dims == ("config", "source", "gamma", "momentum", "time")
    assert tuple(found.gamma.values) == NAMES
    assert found.momentum.values.tolist() == [[0, 0, 0], [1, 0, 0]]
    assert list(found.direction) == ["x", "y", "z"]
    assert list(found.source.values) == ["x0y0z0t0", "x0y0z0t2"]
    assert float(found.residual.max()) <= 1e-6 and found.residual.shape == (2, 2, 12)
    pion = found.correlator.values[:, :, PION, 0]
    assert np.all(pion.real > 0) and np.abs(pion.imag).max() < 1e-12 * pion.real.max()


def test_averages_are_those_of_the_correlators(ran: Path) -> None:
    each, average = (open_result(ran / "store", name) for name in ("mesons", "average"))
    of_config = each.correlator.values.real.mean(axis=1)
    np.testing.assert_allclose(average.correlator, of_config.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(
        average.correlator_error, np.abs(of_config[0] - of_config[1]) / 2, rtol=1e-7, atol=1e-15
    )
    x, y, z = (of_config.mean(axis=0)[NAMES.index(f"Gamma{axis}")] for axis in "XYZ")
    found = average.channel_correlator
    np.testing.assert_allclose(found.sel(channel="rho")[0], (x + y + z)[0] / 3, rtol=1e-13)
    np.testing.assert_allclose(found.sel(channel="rho, longitudinal")[1], x[1], rtol=1e-13)
    np.testing.assert_allclose(found.sel(channel="rho, transverse")[1], (y + z)[1] / 2, rtol=1e-13)
    assert np.isnan(found.sel(channel="rho")[1]).all()
    assert np.isnan(found.sel(channel="rho, transverse")[0]).all()
    rest = [name for name in found.channel.values if not np.isnan(found.sel(channel=name)[0]).any()]
    assert rest == list(CHANNELS)
    mass = average.sel(channel="pion").effective_mass.values
    assert np.isfinite(mass[:, 1:3]).all() and (mass[1, 1:3] > mass[0, 1:3]).all()


def test_the_report(ran: Path) -> None:
    page = (ran / "report" / "index.html").read_text()
    expected = [*("Meson correlators", "Effective masses", "Solves", "Gauge configurations"), *ENGINES]
    assert re.findall(r"<h2>(.*?)</h2>", page) == expected
    assert (
        "with jackknife errors (errors have 1 degree of freedom: multiply them by 1.84 for a 68 % interval)"
        in page
    )
    assert "of freedom" in (ran / "report" / "mesons.txt").read_text()
    tables = (ran / "report" / "tables.txt").read_text()
    assert "C(t) at p = 0,0,0" in tables and "C(t) at p = 1,0,0" in tables
    assert "rho, longitudinal, p = 1,0,0" in tables and "rho, p = 1,0,0" not in tables
    assert re.search(r"\ncgnr +48 +\d+ / [\d.]+ / \d+ +1e-06", tables)
    columns = np.loadtxt(ran / "report" / "mesons.txt")
    average = open_result(ran / "store", "average")
    np.testing.assert_allclose(
        columns[:, 1::2].T.reshape(16, 2, 4), average.correlator, rtol=1e-14, atol=1e-20
    )


AGAIN = {"mesons": 4, "average": 1}
CHANGES = {
    "nothing": ([], {}),
    "more": (
        [("times: [0, 2]", "times: [0, 1, 2]"), ("configurations: 2", "configurations: 3")],
        {"configuration": 1, "observables": 1, "mesons": 5, "average": 1},
    ),
    "how columns share blocks": (
        [("tolerance: 1.0e-6", "tolerance: 1.0e-6, block: 5, max_iterations: 900")],
        {},
    ),
    "kappa": ([("kappa: 0.11", "kappa: 0.12")], AGAIN),
    "csw": ([("csw: 1.2", "csw: 1.1")], AGAIN),
    "stout": ([("csw: 1.2", "csw: 1.2, stout: {rho: 0.1, steps: 1}")], AGAIN),
    "boundary": ([("antiperiodic", "periodic")], AGAIN),
    "neutral mesons": (
        [("kappa: 0.11", "kappa: 0.11, mu: 0.1"), ("mesons: {", "mesons: {flavours: [neutral], ")],
        {**AGAIN, "neutral_mesons": 4, "neutral_average": 1},
    ),
    "an axis": ([("[1, 0, 0]", "[0, 1, 0]")], AGAIN),
    "no axis": ([("[1, 0, 0]", "[1, 1, 0]")], AGAIN),  # sums of matrices are measured
    "auto": ([("solver: cgnr", "solver: auto")], {"solver_choice": 1}),  # before the campaign is planned
    "multigrid": ([("solver: cgnr", "solver: multigrid")], {"multigrid_setup": 2, **AGAIN}),
    "multigrid, more": (
        [("solver: cgnr", "solver: multigrid"), ("times: [0, 2]", "times: [0, 1, 2, 3]")],
        {"multigrid_setup": 2, "mesons": 8, "average": 1},
    ),
}
SAID = {"an axis": "changed parameter: momenta", "no axis": "gammas (absent) -> ['Identity', "}
SAID |= dict.fromkeys(("kappa", "csw", "stout", "boundary"), "upstream changed: operator")


def test_what_a_change_computes_again(quarkline: CommandLine, mesons: Path) -> None:
    text = mesons.read_text()
    for name, (changes, expected) in CHANGES.items():
        mesons.write_text(text)
        assert missing(quarkline, edit(mesons, *changes)) == expected, name
        if name in SAID:
            reasons = quarkline("plan", mesons).out
            assert SAID[name] in reasons and max(map(len, reasons.splitlines())) < 480
    mesons.write_text(text)
    assert re.search(r"mesons +mesons +meson_two_point +4 +4\n", quarkline("status", mesons).out)
    assert quarkline("export", mesons, "--output", "out").code == 0
    assert {path.name for path in (mesons.parent / "out").iterdir()} >= {"mesons.h5", "average.zarr"}


def test_a_single_configuration_is_measured_without_errors(quarkline, mesons, cluster):
    before = open_result(mesons.parent / "store", "mesons").load()
    edit(mesons, ("configurations: 2", "configurations: 1"))
    assert missing(quarkline, mesons) == {"average": 1}
    assert quarkline("run", mesons, "--cluster", cluster).code == 0
    average = open_result(mesons.parent / "store", "average").load()
    np.testing.assert_allclose(average.correlator, before.correlator[0].real.mean(axis=0), rtol=1e-13)
    assert np.isnan(average.correlator_error).all() and np.isnan(average.effective_mass_error).all()
    text = (mesons.parent / "report" / "index.html").read_text()
    assert "no errors: at least two bins of configurations are needed" in text and ">nan" not in text
    assert "jackknife errors" not in text
    assert text.count("no errors, which take two bins (hollow points)") == 2
    assert "(hollow points); triangles: negative C(t)." in text
    columns = np.loadtxt(mesons.parent / "report" / "mesons.txt")
    assert np.isfinite(columns[:, 1::2]).all() and np.isnan(columns[:, 2::2]).all()


@pytest.mark.slow
def test_propagators_that_are_kept(quarkline: CommandLine, mesons: Path, cluster: str) -> None:
    """In the store they are the same, and the correlators made of them, too."""
    before = open_result(mesons.parent / "store", "mesons").load()
    edit(mesons, ("store: store", "keep_propagators: true\nstore: store"))
    assert missing(quarkline, mesons) == {"kept_propagator": 4, "mesons": 4, "average": 1}
    assert quarkline("run", mesons, "--cluster", cluster).code == 0
    kept = open_result(mesons.parent / "store", "kept_propagator")
    assert kept.propagator.dims == ("config", "parity", "site", "component", "source", "column")
    norms = (np.abs(kept.propagator.values) ** 2).reshape(2, 2, 4, -1, 2, 12).sum(axis=(1, 3, 5))
    after = open_result(mesons.parent / "store", "mesons").load()
    np.testing.assert_array_equal(after.correlator, before.correlator)
    pion = after.correlator.values[:, 0, PION, 0].real
    np.testing.assert_allclose(pion, norms[..., 0], rtol=1e-12)


def test_sources_on_smeared_links(quarkline: CommandLine, mesons: Path, cluster: str) -> None:
    """The correlators of the file are those of the same steps in Python, and not those on thin links."""
    smearing = "smearing: {width: 1.5, steps: 4, links: {kind: ape, steps: 2, alpha: 0.5}}"
    one = ("[0, 2]", "[2]"), ("configurations: 2", "configurations: 1")
    edit(mesons, ("kind: point", f"kind: smeared, {smearing}"), *one)
    assert quarkline("run", mesons, "--cluster", cluster).code == 0
    result = open_result(mesons.parent / "store", "mesons").load()
    with kernels_of("reference"):  # nothing is compiled
        expected, on_thin = (
            pion_of_stages(str(result.config.values[0]), smeared) for smeared in (True, False)
        )
    np.testing.assert_allclose(result.correlator[0, 0, PION], expected, rtol=1e-4, atol=1e-9)
    assert abs(on_thin[0, 1] / expected[0, 1] - 1) > 0.01


def pion_of_stages(config: str, smeared: bool) -> np.ndarray:
    """The pion from a smeared source, by the stages as functions, on smeared links or on thin ones."""
    at, momenta = At(config=config, source="x0y0z0t2"), ((0, 0, 0), (1, 0, 0))
    chain = {"extents": (4, 4, 4, 4), "beta": 6.0, "seed": 977, "sweeps": 3, "overrelaxation": 1}
    gauge = heatbath_configuration(at=at, **chain)
    links = smeared_links(gauge, at=at, kind="ape", steps=2, alpha=0.5) if smeared else None
    operator = wilson_operator(gauge, at=at, boundary="antiperiodic", kappa=0.11, csw=1.2)
    sources = smeared_sources(gauge, links, at=at, width=1.5, steps=4)
    solved = propagator(operator, sources, at=at, solve=Solve("cgnr", 1e-6))
    return meson_two_point(solved, at=at, extents=(4, 4, 4, 4), momenta=momenta).correlator[0, PION]


def test_a_solve_that_does_not_converge_says_what_to_do(quarkline, mesons, cluster):
    edit(mesons, ("tolerance: 1.0e-6", "tolerance: 1.0e-7, max_iterations: 3"))
    answer = quarkline("run", mesons, "--cluster", cluster)
    assert answer.code == 1 and "Traceback" not in answer.err
    assert "missed the tolerance 1e-07" in answer.out and "raise max_iterations" in answer.out


@pytest.mark.slow
def test_neutral_mesons(quarkline: CommandLine, mesons: Path, cluster: str) -> None:
    """Both signs of mu, by multigrid of either: flavours change places; pages and texts tell both apart."""
    change = "multigrid: {levels: [{aggregate: [2, 2, 2, 2], vectors: 6}]}\nmesons: {flavours: [neutral], "
    edit(mesons, ("solver: cgnr", "solver: multigrid"), ("mesons: {", change), ("kappa", "mu: 0.4, kappa"))
    both = []
    for mu in ("-0.4", "0.4"):
        edit(mesons, (f"mu: {mu[-3:]}" if mu[0] == "-" else "mu: -0.4", f"mu: {mu}"))
        assert quarkline("run", mesons, "--cluster", cluster).code == 0
        found = (open_result(mesons.parent / "store", name) for name in ("average", "neutral_average"))
        both.append([each.correlator.values for each in found])
    page = (mesons.parent / "report" / "index.html").read_text()
    for name, average in zip(("", "neutral_"), both[1], strict=True):
        columns = np.loadtxt(mesons.parent / "report" / f"{name}mesons.txt")
        np.testing.assert_allclose(columns[:, 1::2].T.reshape(16, 2, 4), average, rtol=1e-14, atol=1e-20)
        assert page.count(f"are in {name}mesons.txt") == 1
    charged, neutral = np.array(both)[:, :, PION, 0].swapaxes(0, 1)
    np.testing.assert_allclose(*neutral, rtol=1e-5)
    assert (charged > 1.02 * neutral).all()
    assert "means over up and down, without the quark-line disconnected part" in page
    assert "neutral ones, means over up and down, do" in page


@pytest.mark.slow
def test_mesons_by_multigrid(quarkline: CommandLine, mesons: Path, cluster: str) -> None:
    """The same correlators to the tolerance; more sources take the setups that are there."""
    before = open_result(mesons.parent / "store", "mesons").load()
    levels = "multigrid: {levels: [{aggregate: [2, 2, 2, 2], vectors: 6, refinements: 1}]}"
    edit(mesons, ("solver: cgnr", "solver: multigrid"), ("mesons: {", f"{levels}\nmesons: {{"))
    assert quarkline("run", mesons, "--cluster", cluster).code == 0
    after = open_result(mesons.parent / "store", "mesons").load()
    scale = np.abs(before.correlator.values[:, :, PION]).max(axis=2, keepdims=True)
    assert (np.abs(after.correlator.values - before.correlator.values)[:, :, PION] < 1e-5 * scale).all()
    assert "Multigrid setups" in (mesons.parent / "report" / "index.html").read_text()
    edit(mesons, ("times: [0, 2]", "times: [0, 1, 2]"))
    assert missing(quarkline, mesons) == {"mesons": 2, "average": 1}
    edit(mesons, ("kappa: 0.11", "kappa: 0.111"))
    assert missing(quarkline, mesons)["multigrid_setup"] == 2


@pytest.mark.slow
def test_a_chosen_solver_is_that_solver(quarkline: CommandLine, mesons: Path, cluster: str) -> None:
    """One round measures; the campaign's keys are those of a file that names the solver."""
    edit(mesons, ("solver: cgnr", "solver: auto"))
    assert missing(quarkline, mesons) == {"solver_choice": 1}
    answer = quarkline("run", mesons, "--cluster", cluster)
    found = re.search(r"^solver: ((\w+) (\S+) (\d+)) is the cheapest of ", answer.out, re.MULTILINE)
    assert answer.code == 0 and found
    choice = open_result(mesons.parent / "store", "solver_choice").load().isel(config=0, system=0)
    cost = (choice.setup_seconds + 24 * choice.seconds_per_rhs).values
    assert choice.solver.values[np.nanargmin(cost)] == found[1]
    tried = {name.split()[1] for name in choice.solver.values}
    assert tried == {"double", "double-single", "double-half"}, "the file leaves the precision out"
    text = (mesons.parent / "report" / "tables.txt").read_text()
    assert "# Choice of the solver" in text and "s for 24 rhs" in text
    assert re.search(rf"\n{found[1]} .* chosen\n", text)
    before = set((mesons.parent / "store").glob("[!.]*/???/*"))
    named = f"solver: {found[2]}, precision: {found[3]}"
    edit(mesons, ("solver: auto", named))
    assert missing(quarkline, mesons) == {}
    edit(mesons, (named, "solver: auto"), ("[0, 2]", "[0, 2, 3]"))
    assert missing(quarkline, mesons) == {"mesons": 2, "average": 1}  # a campaign that grows keeps its choice
    assert set((mesons.parent / "store").glob("[!.]*/???/*")) == before
