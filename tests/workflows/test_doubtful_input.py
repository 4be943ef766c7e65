"""Input that is well formed and wrong: refused where it cannot be meant, warned about where it may be."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import xarray
from tiny_hisq_mesons import HISQ_MESONS
from tiny_project import TINY, CommandLine, edit, refused

from pipeline.reading.report import Section, Table
from stages.lqcd.gauge.fixing import planes_plaquette
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.reunitarise import polar_su3
from stages.lqcd.lattice.formats import read_gauge, write_ildg, write_milc, write_nersc
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.lattice.plaquette import link_statistics, plaquette
from support.lexicographic import gauge_to_lexicographic, gauge_to_parity
from workflows.publishing import _warnings
from workflows.shared.ensemble_doubts import TWO_GROUPS, parted
from workflows.shared.report_sections import equal_fields, several_ensembles

SMALL = Lattice((4, 4, 4, 4))
WALL = (
    "kind: point, times: [0, 3]}\nmesons: {operators: [pion5, rhoi, rhois], momenta: [[0, 0, 0], [1, 0, 0]]}",
    "kind: corner_wall, times: [0, 3]}",
)


def test_warned_about_by_plan(quarkline: CommandLine, tmp_path: Path) -> None:
    """The messages are in the tables of wrong inputs."""
    file = tmp_path / "alone" / "file.yaml"  # folders of other tests, with results, are not beside it
    file.parent.mkdir()
    os.chdir(file.parent)
    file.write_text(TINY)
    assert "warning" not in quarkline("plan", file).out
    assert json.loads(quarkline("plan", file, "--json").out)["warnings"] == []
    answer = quarkline("plan", edit(file, ("light: 0.1", "light: 0.5")))
    warning = f"{file}: `masses.light` (line 5): 0.5 is heavier than strange"
    assert answer.code == 0 and f"\nwarning: {warning}" in answer.out
    (told,) = json.loads(quarkline("plan", file, "--json").out)["warnings"]
    assert told.startswith(warning)


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


@cache
def made(*chain: Any) -> np.ndarray:
    """A thermalised field, which nobody changes."""
    return thermalised(SMALL, *chain)


def of_files(text: str, folder: Path, fields: dict[str, np.ndarray], write: Callable[..., None]) -> Path:
    """A workflow file on configurations of these names in a folder."""
    (folder / "confs").mkdir(exist_ok=True)
    for name, links in fields.items():
        write(folder / "confs" / name, links, SMALL)
    heatbath = next(line for line in text.splitlines() if "heatbath" in line)
    file = folder / "file.yaml"
    file.write_text(text.replace(heatbath, '  files: "confs/*"'))
    return file


def ildg(path: Path, links: np.ndarray, lattice: Lattice) -> None:
    write_ildg(path, links, lattice, 64)


def nersc(path: Path, links: np.ndarray, lattice: Lattice) -> None:
    write_nersc(path, links, lattice, 64, rows=2)


@pytest.mark.parametrize("write", [ildg, nersc, write_milc])
def test_files_of_several_ensembles(quarkline, tmp_path, write):
    """By what headers state, or by some planes; and one ensemble is not doubted."""
    fields = {f"a.{seed}": made(6.0, seed, "a", 8, 2) for seed in (70, 71)}
    file = of_files(TINY, tmp_path, fields, write)
    assert "warning" not in quarkline("plan", file).out
    fields["b.1"] = made(16.0, 72, "b", 8, 2)
    answer = quarkline("plan", of_files(TINY, tmp_path, fields, write))
    assert answer.code == 0
    assert re.search(
        r"warning: .*`ensemble.files` \(line 3\): plaquettes form two groups, 0.\d+ to 0.\d+ and 0.8\d+ to "
        r"0.8\d+ \(b.1\), but fluctuate by only about 0.\d+ within one ensemble: are all 3 config",
        answer.out,
    )


def test_damaged_files_are_no_doubt_of_a_plan(quarkline: CommandLine, tmp_path: Path) -> None:
    fields = {f"a.{seed}": thermalised(SMALL, 6.0, seed, "a", 3, 1) for seed in (70, 71)}
    fields["a.71"][:] = np.nan
    answer = quarkline("plan", of_files(TINY, tmp_path, fields, ildg))
    assert answer.code == 0 and "warning" not in answer.out


@pytest.mark.parametrize(
    ("beta", "count"),
    [(5.7, 5), *(pytest.param(beta, 24, marks=pytest.mark.slow) for beta in (5.5, 5.7, 6.0))],
)
def test_chains_of_a_small_lattice_are_one_ensemble(beta: float, count: int) -> None:
    values = {
        str(seed): plaquette(thermalised(SMALL, beta, seed, "c", 12, 2), SMALL).total for seed in range(count)
    }
    assert not parted(values, dict.fromkeys(values, 6 * SMALL.volume))
    assert not parted({k: values[k] for k in ("0", "1", "2")}, dict.fromkeys(values, 6 * SMALL.volume))
    other = values | {"b": 0.75, "c": 0.77}
    text = parted(other, dict.fromkeys(other, 6 * SMALL.volume))
    assert "(b, c), but fluctuate by only about 0.01 within one ensemble: are all " in text
    assert f"are all {count + 2}" in text


@pytest.mark.parametrize("mu", range(4))
def test_plaquette_of_planes(mu: int) -> None:
    """Of a whole lattice the mean of all; of planes the mean in x and y."""
    links = in_gauge(0)
    field = gauge_to_lexicographic(links, SMALL)
    field[..., mu, :, :] *= np.exp(0.4j * np.arange(4)).reshape(4, 1, 1, 1, 1, 1)
    total = plaquette(gauge_to_parity(field, SMALL), SMALL).total
    assert planes_plaquette(field, whole=True) == pytest.approx(total, rel=1e-12)
    turned = field[..., [0, 1, 1, 1], :, :]
    assert planes_plaquette(turned, whole=False) == planes_plaquette(field, whole=False)


def test_ensembles_lie_apart_by_volume() -> None:
    values = {"a": 0.592, "b": 0.594, "c": 0.604}
    assert not parted(values, dict.fromkeys(values, 6 * 8**4))
    assert "0.6040 to 0.6040 (c)" in parted(values, dict.fromkeys(values, 6 * 16**4))


def test_ensembles_by_measured_plaquettes_in_the_report() -> None:
    observed = xarray.Dataset(
        {"plaquette": (("config", "plane"), [[p, p, p] for p in (0.592, 0.874, 0.594)])},
        {"config": ["a", "b", "c"]},
        {"lattice": "8x8x8x8 (x, y, z, t)"},
    )
    text = several_ensembles(observed)
    assert text.startswith("Warning: plaquettes form two groups, 0.5920 to 0.5940 and 0.8740 to 0.8740 (b)")
    assert not several_ensembles(observed.isel(config=[0, 2]))
    project: Any = SimpleNamespace(
        warnings=[f"a.yaml: `ensemble.files`: {TWO_GROUPS}, 0.6 and 0.9", "another"]
    )
    for shown, rows in ((text, [["another"]]), ("", [[warning] for warning in project.warnings])):
        (section,) = _warnings(project, [Section("Gauge configurations", shown, [])])
        (table,) = section.parts
        assert isinstance(table, Table) and table.rows == rows  # said once


@pytest.mark.parametrize("write", [ildg, nersc, write_milc])
def test_walls_need_a_gauge_that_is_fixed(quarkline, tmp_path, write):
    """Measured: a field in Coulomb gauge or in Landau gauge is not doubted, another one is."""
    text = HISQ_MESONS.replace(*WALL)
    answer = quarkline("plan", of_files(text, tmp_path, {"a.1": in_gauge(0)}, write))
    assert re.search(r"\(line 5\): needs a fixed gauge, but a.1 is in none: .* gauge is \d", answer.out)
    for directions in (3, 4):
        answer = quarkline("plan", of_files(text, tmp_path, {"a.1": in_gauge(directions)}, write))
        assert answer.code == 0 and "warning" not in answer.out


@cache
def in_gauge(directions: int) -> np.ndarray:
    """A field in Coulomb gauge (3 directions), Landau gauge (4), or none: Re tr g K at its maxima."""
    field = gauge_to_lexicographic(made(6.0, 70, "a", 8, 2), SMALL)  # [t, z, y, x, mu, 3, 3]
    parity = np.indices(field.shape[:4]).sum(axis=0) % 2
    for sweep in range(200 if directions else 0):
        staples = sum(
            field[..., mu, :, :] + np.roll(field[..., mu, :, :], 1, axis=3 - mu).conj().swapaxes(-1, -2)
            for mu in range(directions)
        )
        step = polar_su3(staples.conj().swapaxes(-1, -2))
        g = np.where((parity == sweep % 2)[..., None, None], step, np.eye(3))
        for mu in range(4):
            ahead = np.roll(g, -1, axis=3 - mu).conj().swapaxes(-1, -2)
            field[..., mu, :, :] = g @ field[..., mu, :, :] @ ahead
    return gauge_to_parity(field, SMALL)


def test_one_configuration_under_several_names(quarkline: CommandLine, tmp_path: Path) -> None:
    fields = {f"conf.{n}.ildg": made(6.0, 69 + n, "a", 8, 2) for n in (1, 2)}
    file, confs = of_files(TINY, tmp_path, fields, ildg), tmp_path / "confs"
    assert quarkline("plan", file).code == 0
    for copy in ("copy.ildg", "more.ildg"):
        shutil.copyfile(confs / "conf.1.ildg", confs / copy)
    for command in ("plan", "run", "report"):
        refused(
            quarkline(command, file),
            f"{confs}/conf.1.ildg, {confs}/copy.ildg and {confs}/more.ildg have the same content (SHA-256 ",
            "one configuration under 3 names counts 3 times, and errors come out too small: keep one of them",
        )
        assert not (tmp_path / "store").exists()


def test_one_field_in_two_precisions(tmp_path: Path) -> None:
    """The files have nothing in common, so that it shows in what is measured on them."""
    lattice = SMALL
    fields = {name: made(6.0, seed, "a", 8, 2) for name, seed in (("one", 70), ("two", 71))}
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
