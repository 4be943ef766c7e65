"""Input that is well formed and wrong: refused where it cannot be meant, warned about where it may be."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import xarray
from tiny_laph import LAPH
from tiny_mesons import MESONS
from tiny_project import TINY, CommandLine, edit, refused

from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.lattice.formats import read_gauge, write_ildg
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.plaquette import link_statistics, plaquette
from workflows.shared.report_sections import equal_fields

pytestmark = pytest.mark.usefixtures("plain_figures")
TEXTS = {"g2": TINY, "mesons": MESONS, "laph": LAPH}


@pytest.mark.parametrize(
    ("workflow", "before", "after", "message"),
    [
        (
            "g2",
            "[4, 4, 4, 4]",
            "[4, 2, 4, 4]",
            "`links.action` (line 4): hisq has links of three hops, which wind around an extent of 2 of the "
            "lattice 4x2x4x4: take at least 4 sites in each direction, or action naive",
        ),
        (
            "g2",
            "light: 0.1,",
            "light: 0,1,",
            "unknown key 1 in `masses` (line 5): a key is a word, and a number has a decimal point: 0.1",
        ),
        (
            "g2",
            "beta: 6.0",
            "beta: '6,0'",
            "`ensemble.heatbath.beta` (line 3) is '6,0', expected a number, with a decimal point: 6.0",
        ),
        (
            "mesons",
            "kappa: 0.11",
            "kappa: 0.3",
            "`quark` (line 4): kappa = 0.3 (mass -2.33333) lies beyond the critical mass -2 of the strongest "
            "coupling: no ensemble has light quarks there",
        ),
        (
            "mesons",
            "kappa: 0.11",
            "mass: -2.5",
            "mass = -2.5 (kappa 0.333333) lies beyond the critical mass",
        ),
        (
            "mesons",
            "[1, 0, 0]",
            "[9, 0, 0]",
            "`mesons.momenta` (line 7): 9 along x of [9, 0, 0] is 1 on 4 sites: take numbers from -2 to 2",
        ),
        (
            "laph",
            "[1, 0, 0]",
            "[0, 0, -3]",
            "`operators.momenta` (line 9): -3 along z of [0, 0, -3] is 1 on 4 sites: take numbers",
        ),
        (
            "laph",
            "solves: {",
            "insertions: {separations: [2], momenta: [[3, 0, 0]]}\nsolves: {",
            "`insertions.momenta` (line 8): 3 along x of [3, 0, 0] is -1 on 4 sites",
        ),
    ],
)
def test_refused(
    quarkline: CommandLine, tmp_path: Path, workflow: str, before: str, after: str, message: str
) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(TEXTS[workflow])
    refused(quarkline("plan", edit(file, (before, after))), message)


@pytest.mark.parametrize(
    ("workflow", "before", "after", "message"),
    [
        (
            "g2",
            "light: 0.1",
            "light: 0.5",
            "`masses.light` (line 5): 0.5 is heavier than strange, 0.3: are the two exchanged?",
        ),
        (
            "g2",
            "light: 0.1",
            "light: 0.3",
            "`masses.light` (line 5): is that of strange, 0.3: their difference is zero",
        ),
        (
            "g2",
            "solves:",
            "deflation: {vectors: 4, tolerance: 1.0e-2}\nsolves:",
            "`deflation.tolerance` (line 12): 0.01 leaves vectors that solves on odd sites may gain nothing "
            "from: take at most 0.0001; the default is 1e-8",
        ),
        (
            "mesons",
            "csw: 1.2",
            "csw: 1.2, stout: {rho: 0.22, steps: 1}",
            "`quark.stout` (line 4): rho = 0.22 lets short waves grow, which at most 0.125 damps",
        ),
        (
            "mesons",
            "kappa: 0.11",
            "kappa: 0.2",
            "`quark` (line 4): kappa = 0.2 (mass -1.5) lies beyond the critical mass of common ensembles "
            "(kappa 0.125 free, about 0.17 at beta 5.7): solves may not converge, or give no pion",
        ),
        (
            "mesons",
            "kind: point",
            "kind: smeared, smearing: {width: 1.0, steps: 4, links: {kind: ape, steps: 2, alpha: 0.7}}",
            "`sources.smearing.links` (line 5): alpha = 0.7 lets short waves grow, which at most 0.6667 "
            "damps",
        ),
        (
            "laph",
            "rho: 0.1",
            "rho: 0.2",
            "`smearing` (line 5): rho = 0.2 lets short waves grow, which at most 0.1667 damps",
        ),
        (
            "laph",
            "kappa: 0.11",
            "mass: -1.1",
            "`quark` (line 4): mass = -1.1 (kappa 0.172414) lies beyond the critical mass of common",
        ),
    ],
)
def test_warned_about_by_plan(
    quarkline: CommandLine, tmp_path: Path, workflow: str, before: str, after: str, message: str
) -> None:
    file = tmp_path / "alone" / "file.yaml"  # folders of other tests, with results, are not beside it
    file.parent.mkdir()
    os.chdir(file.parent)
    file.write_text(TEXTS[workflow])
    assert "warning" not in quarkline("plan", file).out
    assert json.loads(quarkline("plan", file, "--json").out)["warnings"] == []
    answer = quarkline("plan", edit(file, (before, after)))
    assert answer.code == 0 and f"\nwarning: {file}: {message}" in answer.out
    (warning,) = json.loads(quarkline("plan", file, "--json").out)["warnings"]
    assert warning.startswith(f"{file}: {message}")


def test_warned_about_by_run_and_report(quarkline: CommandLine, tmp_path: Path, cluster: str) -> None:
    file = tmp_path / "g2.yaml"
    file.write_text(TINY)
    edit(file, ("light: 0.1", "light: 0.5"))
    answer = quarkline("run", file, "--cluster", cluster)
    warning = f"warning: {file}: `masses.light` (line 5): 0.5 is heavier than strange"
    assert answer.code == 0 and warning in answer.out
    for name in ("index.html", "tables.txt"):
        text = (tmp_path / "report" / name).read_text()
        assert "Warnings" in text and "(line 5): 0.5 is heavier than strange" in text
    content = json.loads(quarkline("run", file, "--cluster", cluster, "--json").out)
    assert "0.5 is heavier than strange" in content["warnings"][0]


@pytest.mark.parametrize("command", ["plan", "run", "report"])
def test_one_configuration_under_several_names(quarkline: CommandLine, tmp_path: Path, command: str) -> None:
    lattice, confs = Lattice((4, 4, 4, 4)), tmp_path / "confs"
    confs.mkdir()
    write_ildg(confs / "conf.1.ildg", thermalised(lattice, 6.0, 70, "a", 2, 1), lattice, 64)
    write_ildg(confs / "conf.2.ildg", thermalised(lattice, 6.0, 71, "a", 2, 1), lattice, 64)
    file = tmp_path / "g2.yaml"
    file.write_text(TINY)
    heatbath = next(line for line in TINY.splitlines() if "heatbath" in line)
    edit(file, (heatbath, '  files: "confs/*.ildg"'))
    assert quarkline("plan", file).code == 0
    for copy in ("copy.ildg", "more.ildg"):
        shutil.copyfile(confs / "conf.1.ildg", confs / copy)
    refused(
        quarkline(command, file),
        f"{confs}/conf.1.ildg, {confs}/copy.ildg and {confs}/more.ildg have the same content (SHA-256 ",
        "one configuration under 3 names counts 3 times, and errors come out too small: keep one of them",
    )
    assert not (tmp_path / "store").exists()


def test_one_field_in_two_precisions(tmp_path: Path) -> None:
    """The files have nothing in common, so that it shows in what is measured on them."""
    lattice = Lattice((4, 4, 4, 4))
    fields = {name: thermalised(lattice, 6.0, seed, "a", 2, 1) for name, seed in (("one", 70), ("two", 71))}
    read = {}
    for name, field, bits in (("one", "one", 64), ("two", "two", 64), ("copy", "one", 32)):
        write_ildg(tmp_path / name, fields[field], lattice, bits)
        read[name] = read_gauge(tmp_path / name).links
    observed = xarray.Dataset(
        {
            "plaquette": (("config", "plane"), [plaquette(links, lattice) for links in read.values()]),
            "link_trace": ("config", [link_statistics(links).trace for links in read.values()]),
        },
        {"config": list(read)},
    )
    text = equal_fields(observed)
    assert text.startswith(("Warning: one and copy agree in plaq", "Warning: copy and one agree in plaq"))
    assert text.endswith("errors come out too small. Keep one of them.")
    assert not equal_fields(observed.isel(config=[0, 1]))
