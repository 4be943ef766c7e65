"""The workflow `laph_mesons` through the command line: run, extend, noise, choice of a solver, report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray
from tiny_laph import LAPH
from tiny_project import CommandLine, edit, missing, runs_of

from pipeline import open_result
from pipeline.reading.report import Table
from stages.lqcd.spectroscopy.gammas import NAMES
from stages.lqcd.spectroscopy.little_group import channels_at
from stages.lqcd.spectroscopy.operators import BILINEARS
from workflows.laph_mesons.report import level_sections

NOISE = (
    "solves: {",
    "noise: {kind: z4, seed: 5, vectors: 2, dilution: {eigenvector: interlace-2}}\nsolves: {",
)
INSERTIONS = (
    "solves: {",
    "insertions: {separations: [2, 1], momenta: [[0, 0, 0], [1, 0, 0]], displacements: ['', +x]}\nsolves: {",
)


ran, laph = runs_of("laph", LAPH)


def test_results_have_names(ran: Path) -> None:
    modes, tau, mesons = (
        open_result(ran / "store", name) for name in ("laplace_eigenvectors", "perambulator", "mesons")
    )
    assert modes.vectors.dims == ("config", "time", "parity", "site", "colour", "eigenvector")
    assert modes.vectors.shape == (2, 4, 2, 32, 3, 4) and float(modes.residual.max()) < 1e-6
    dims = ("config", "source", "time", "spin_sink", "sink", "spin_source", "eigenvector")
    assert tau.perambulator.dims == dims and list(tau.source.values) == ["t0", "t2"]
    assert float(tau.residual.max()) <= 1e-7
    assert tuple(mesons.gamma.values) == NAMES
    pion = mesons.correlator.sel(gamma="Gamma5").isel(momentum=0).values
    assert np.all(pion.real > 0) and np.abs(pion.imag).max() < 1e-6 * pion.real.max()


def test_levels_of_one_operator_are_its_correlator(ran: Path) -> None:
    average, levels = (open_result(ran / "store", name).load() for name in ("average", "levels"))
    pion = average.correlator.sel(gamma="Gamma5").isel(momentum=0).values
    np.testing.assert_allclose(levels.eigenvalue.values[0, 0], pion / pion[0], rtol=1e-10)
    rho = average.channel_correlator.sel(channel="rho").isel(momentum=0).values
    np.testing.assert_allclose(levels.eigenvalue.values[0, 1], rho / rho[0], rtol=1e-10)
    assert levels.basis.values.tolist() == [0, 1, 2, 3]
    assert list(levels.level.values) == ["pion 0", "rho 0", "rho, longitudinal 0", "rho, transverse 0"]
    for level in ("rho, longitudinal 0", "rho, transverse 0"):
        found = levels.eigenvalue.sel(level=level).values
        assert np.isnan(found[0]).all() and np.isfinite(found[1]).all()
    moving = average.correlator.sel(gamma=["GammaY", "GammaZ"]).isel(momentum=1).values.mean(axis=0)
    np.testing.assert_allclose(levels.eigenvalue.values[1, 3], moving / moving[0], rtol=1e-10)
    np.testing.assert_allclose(
        average.channel_correlator.sel(channel="rho, transverse").isel(momentum=1), moving, rtol=1e-13
    )


@pytest.mark.slow
def test_one_analysis_that_fails_leaves_the_rest(quarkline: CommandLine, laph: Path, cluster: str) -> None:
    """A correlation matrix that is not positive: report and export of all else, until the file is mended."""
    dependent = (
        "[[[Gamma5]], [[GammaX], [GammaY], [GammaZ]]]",
        "[[[Gamma5, GammaTGamma5, Identity, GammaT]]]",
    )
    edit(laph, dependent, ("t0: 0", "t0: 2"))
    answer = quarkline("run", laph, "--cluster", cluster)
    assert answer.code == 1 and "is not positive definite" in answer.out
    assert "report (without levels): " in answer.out
    page = (laph.parent / "report" / "index.html").read_text()
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    missing_first = ["What is missing", "Meson correlators", "Effective masses", "Laplace eigenvectors"]
    assert headings[:4] == missing_first
    assert "without levels</h1>" in page
    answer = quarkline("export", laph, "--format", "hdf5", "--output", "out")
    written = {path.stem for path in (laph.parent / "out").iterdir()}
    assert answer.code == 1 and "not written: out/levels.h5: result 'levels' has 0 of 1 chunks" in answer.err
    assert {"average", "mesons", "elementals"} < written and "levels" not in written
    assert missing(quarkline, edit(laph, dependent[::-1], ("t0: 2", "t0: 0"))) == {}


def test_operators_of_levels_are_those_of_their_momentum() -> None:
    momenta, operators = [(1, 1, 0), (1, 0, -1)], {"rho": [["GammaX"], ["GammaY"], ["GammaZ"]]}
    bases = channels_at(operators, momenta, (4, 4, 4), BILINEARS)
    values = np.ones((2, len(bases), 4))
    named = dict.fromkeys(("energy", "energy_error", "eigenvalue"), (("momentum", "level", "time"), values))
    placed = {
        "basis": ("level", [*range(len(bases))]),
        "momentum": (("momentum", "direction"), np.array(momenta)),
    }
    levels = xarray.Dataset({**named, **placed}, attrs={"parameters": {"bases": bases}})
    parameters: Any = SimpleNamespace(operators=SimpleNamespace(t0=0))
    sections = {section.title: section.parts for section in level_sections(parameters, levels)}
    captions = [part.caption for part in sections["Levels of rho, longitudinal"] if isinstance(part, Table)]
    assert captions == [
        "rho, longitudinal, p = 1,1,0: operators GammaX + GammaY",
        "rho, longitudinal, p = 1,0,-1: operators GammaX - GammaZ",
    ]


def test_the_report(ran: Path) -> None:
    page = (ran / "report" / "index.html").read_text()
    bases = ("pion", "rho", "rho, longitudinal", "rho, transverse")
    headings = ["Meson correlators", "Effective masses", *(f"Levels of {name}" for name in bases)]
    assert re.findall(r"<h2>(.*?)</h2>", page)[:6] == headings
    tables = (ran / "report" / "tables.txt").read_text()
    assert "# Levels of rho, transverse\n\nrho, transverse, p = 1,0,0: operators GammaY; GammaZ\n" in tables
    assert "rho, p = 1,0,0" not in tables
    assert "4 lowest Laplace eigenvectors" in page
    assert "with jackknife errors (errors have 1 degree of freedom" in page
    assert (ran / "report" / "mesons.txt").read_text().count("Identity p=") == 2


def test_what_is_computed_again(quarkline: CommandLine, laph: Path) -> None:
    """A source time more costs its own solves; other operators no solve; other smearing everything."""
    assert missing(quarkline, laph) == {}
    edit(laph, ("times: [0, 2]", "times: [0, 1, 2]"))
    assert missing(quarkline, laph) == {"perambulator": 2, "mesons": 2, "average": 1, "levels": 1}
    edit(laph, ("times: [0, 1, 2]", "times: [0, 2]"), ("[[Gamma5]]", '[["Gamma5[+x]"]]'))
    assert missing(quarkline, laph) == {"elementals": 2, "mesons": 4, "average": 1, "levels": 1}
    edit(laph, ('[["Gamma5[+x]"]]', "[[Gamma5]]"), ("rho: 0.1", "rho: 0.12"))
    everything = {"laplace_eigenvectors": 4, "elementals": 2, "perambulator": 4, "mesons": 4}
    assert missing(quarkline, laph) == {**everything, "average": 1, "levels": 1}


def test_noise_instead_of_all_eigenvectors(quarkline: CommandLine, laph: Path, cluster: str) -> None:
    """Eigenvectors and elementals are there; an estimate has the pion's sign and size."""
    exact = open_result(laph.parent / "store", "average").load()
    edit(laph, NOISE, ("times: [0, 2]", "times: [0]"))
    wanted = {"sink_projection": 4, "mesons": 2, "average": 1, "levels": 1}
    assert missing(quarkline, laph) == wanted
    assert quarkline("run", laph, "--cluster", cluster).code == 0
    average = open_result(laph.parent / "store", "average").load()
    before, after = (
        float(found.correlator.sel(gamma="Gamma5").isel(momentum=0, time=0)) for found in (exact, average)
    )
    assert 0.5 < after / before < 2
    page = (laph.parent / "report" / "index.html").read_text()
    assert "estimated with 2 noise vectors" in page


def test_auto_measures_before_it_plans_the_campaign(quarkline: CommandLine, laph: Path) -> None:
    """On eigenvectors that are there; on diluted noise where that is what the campaign solves for."""
    edit(laph, ("solver: cgnr", "solver: auto"))
    assert missing(quarkline, laph) == {"solver_choice": 1}
    edit(laph, NOISE)
    assert missing(quarkline, laph) == {"solver_choice": 1}
    edit(laph, ("vectors: 4,", "vectors: 6,"))
    assert missing(quarkline, laph) == {"laplace_eigenvectors": 2, "solver_choice": 1}


@pytest.mark.slow
@pytest.mark.parametrize("noise", [False, True])
def test_a_chosen_solver_is_that_solver(quarkline, laph, cluster, noise):
    """One round measures; the campaign's keys are those of a file that names the solver."""
    exact = open_result(laph.parent / "store", "perambulator").load()
    levels = "multigrid: {levels: [{aggregate: [2, 2, 2, 2], vectors: 6, refinements: 1}]}"
    edit(laph, ("solver: cgnr", "solver: auto"), ("operators:", f"{levels}\noperators:"))
    if noise:
        edit(laph, NOISE, ("times: [0, 2]", "times: [0]"))
    answer = quarkline("run", laph, "--cluster", cluster)
    found = re.search(r"^solver: ((\w+) (\S+) (\d+)) is the cheapest of ", answer.out, re.MULTILINE)
    assert answer.code == 0 and found
    choice = open_result(laph.parent / "store", "solver_choice").load()
    assert found[1] in choice.solver.values and choice.sizes["config"] == 1
    assert np.nanmax(choice.residual.values) <= 1e-7
    text = (laph.parent / "report" / "tables.txt").read_text()
    assert "# Choice of the solver" in text and f"s for {16 if noise else 32} rhs" in text
    assert re.search(rf"\n{found[1]} .* chosen\n", text)
    assert quarkline("export", laph, "--output", "out").code == 0
    assert (laph.parent / "out" / "solver_choice.h5").exists()
    before = set((laph.parent / "store").glob("[!.]*/???/*"))
    assert quarkline("run", laph, "--cluster", cluster).code == 0
    named = f"solver: {found[2]}, precision: {found[3]}"
    edit(laph, ("solver: auto", named))
    assert missing(quarkline, laph) == {}
    assert set((laph.parent / "store").glob("[!.]*/???/*")) == before
    if noise:
        return
    tau = open_result(laph.parent / "store", "perambulator").perambulator.values
    assert np.abs(tau - exact.perambulator.values).max() < 1e-6 * np.abs(tau).max()
    edit(laph, (named, "solver: auto"), ("[0, 2]", "[0, 2, 3]"))
    wanted = {"perambulator": 2, "mesons": 2, "average": 1, "levels": 1}
    assert missing(quarkline, laph) == wanted  # a campaign that grows keeps its choice
    assert f"{sum(wanted.values())} chunks missing in" in quarkline("export", laph).err


@pytest.mark.slow
def test_currents_between_sources_and_sinks(quarkline: CommandLine, laph: Path, cluster: str) -> None:
    """They are added to a finished run and take the bytes that a plan says; G of a line back is gamma5 G^dag
    gamma5 of that there.
    """
    edit(laph, INSERTIONS)
    assert missing(quarkline, laph) == {"current_insertion": 4}
    planned = json.loads(quarkline("plan", laph, "--json").out)["stored_bytes"]
    assert quarkline("run", laph, "--cluster", cluster).code == 0
    assert missing(quarkline, laph) == {}
    files = (laph.parent / "store" / "current_insertion").rglob("*")
    assert planned == pytest.approx(sum(file.stat().st_size for file in files if file.is_file()), rel=0.02)
    made = open_result(laph.parent / "store", "current_insertion")
    ends = ("spin_sink", "sink", "spin_source", "eigenvector")
    currents = ("gamma", "momentum", "displacement")
    assert made.insertion.dims == ("config", "source", "separation", "time", *currents, *ends)
    assert made.insertion.shape == (2, 2, 2, 4, 16, 2, 2, 4, 4, 4, 4)
    assert tuple(made.gamma.values) == NAMES and made.sink_time.values[0].tolist() == [[2, 1], [0, 3]]
    assert float(made.residual.max()) <= 1e-7 and float(made.sink_residual.max()) <= 1e-7
    scalar = made.insertion.isel(separation=0, momentum=0, displacement=0).sel(gamma="Identity").values
    there, back = scalar[:, 0], scalar[:, 1]
    signs = np.array([1, 1, -1, -1])[:, None, None, None] * np.array([1, 1, -1, -1])[:, None]
    adjoint = signs * back.transpose(0, 1, 4, 5, 2, 3).conj()
    assert np.abs(there - adjoint).max() < 1e-5 * np.abs(there).max()
    assert "current_insertion" in (laph.parent / "report" / "index.html").read_text()
