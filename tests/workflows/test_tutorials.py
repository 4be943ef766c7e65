"""The tutorials: all blocks in order, on small lattices by default and as they stand in their full length."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
QUENCHED = {"beta": 6.0, "configurations": 2, "sweeps": 3, "overrelaxation": 1, "seed": 977}
WILSON = {
    "ensemble": {"heatbath": {"extents": [4, 4, 4, 10], **QUENCHED}},
    "quark": {"kappa": 0.11, "csw": 1.2, "boundary": "antiperiodic"},
    "solves": {"solver": "cgnr", "tolerance": 1e-6},
}
SHORT: dict[str, dict[str, Any]] = {
    "tutorial": {
        "ensemble": {"heatbath": {"extents": [4, 4, 4, 4], **QUENCHED}},
        "masses": {"light": 0.1, "strange": 0.3},
        "noise": {"kind": "z2", "seed": 55, "vectors": 4, "chunk": 4, "dilution": {"displacement": 2}},
    },
    "tutorial_mesons": WILSON,
    "tutorial_distillation": {
        "ensemble": {"heatbath": {"extents": [4, 4, 4, 10], **QUENCHED, "sweeps": 20}},
        "quark": {"kappa": 0.11, "boundary": "antiperiodic"},
        "distillation": {"vectors": 6},
        "operators": {"bases": ["pion", "rho"], "t0": 1},
        "solves": {"solver": "cgnr", "tolerance": 1e-6, "block": 16},
    },
}
"""Sections of the file that a tutorial works with, in place of those that `init` writes."""
SHOWN = {
    "tutorial": (r"C\(1\) = -?\d\.\d{3} \+- \d\.\d{3}", "report-g2/index.html", "exported/average.h5"),
    "tutorial_mesons": (r"rho \['", "report-mesons/index.html", "report-smeared/index.html"),
    "tutorial_distillation": (r"rho 1 \['", "report-laph/index.html", "report-t0-2/index.html"),
}
"""What is printed, and files that are there at the end."""


def blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text())


def shortened(file: Path, page: str) -> None:
    """Replace sections of a file that `init` has written."""
    yaml = YAML()
    content = yaml.load(file)
    yaml.dump({**content, **SHORT[page]}, file)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow) if page != "tutorial" else page for page in SHORT]
)
def test_in_short(page, quarkline, cluster, capsys, plain_figures):
    """Every command and every line of Python, on a small lattice and the warm workers."""
    session: dict[str, Any] = {}
    shown = ""
    for kind, code in blocks(page):
        if kind == "python":
            exec(compile(code, page, "exec", dont_inherit=True), session)
            shown += capsys.readouterr().out
        for line in code.splitlines() if kind == "console" else ():
            program, *arguments = shlex.split(line)
            if program != "quarkline":
                subprocess.run(["bash", "-euc", line], check=True, capture_output=True)
                continue
            answer = quarkline(*arguments, *(["--cluster", cluster] if arguments[0] == "run" else []))
            assert answer.code == 0, f"{line}\n{answer.out}\n{answer.err}"
            shown += answer.out
            if arguments[0] == "init":
                shortened(Path(arguments[-1]), page)
    printed, *files = SHOWN[page]
    assert re.search(printed, shown), shown
    assert all(Path(file).is_file() for file in files)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", SHORT)
def test_as_typed(page, tmp_path, monkeypatch, capsys):
    """All blocks in order, commands in a shell, Python in one session."""
    monkeypatch.chdir(tmp_path)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    session: dict[str, Any] = {}
    shown = ""
    for kind, code in blocks(page):
        if kind == "python":
            exec(compile(code, page, "exec", dont_inherit=True), session)
            shown += capsys.readouterr().out
        elif kind == "console":
            command = ["bash", "-euc", code]
            ended = subprocess.run(command, env=environment, capture_output=True, text=True)
            assert ended.returncode == 0, f"{code}\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}"
            shown += ended.stdout
    printed, *files = SHOWN[page]
    assert re.search(printed, shown), shown
    assert all(Path(file).is_file() for file in files)


@pytest.mark.parametrize("page", ["tutorial_mesons", "tutorial_distillation"])
def test_sections_that_are_shown_are_those_of_the_file(page: str) -> None:
    name = {"tutorial_mesons": "mesons", "tutorial_distillation": "laph_mesons"}[page]
    file = YAML(typ="safe").load(ROOT / "workflows" / f"{name}.yaml")
    section = YAML(typ="safe").load(next(code for kind, code in blocks(page) if kind == "yaml"))
    assert {key: file[key] for key in section} == section


def test_the_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All lines of the page, on correlators of one state with noise."""
    gvar = pytest.importorskip("gvar")
    pytest.importorskip("lsqfit")
    pytest.importorskip("corrfitter")
    import numpy as np
    import xarray

    t, rng = np.arange(16), np.random.default_rng(7)
    state = 0.3 * (np.exp(-1.0 * t) + np.exp(-1.0 * (16 - t)))
    samples = state * (1 + 0.05 * rng.normal(size=(40, 1)) + 0.02 * rng.normal(size=(40, 16)))
    monkeypatch.chdir(tmp_path)
    Path("exported").mkdir()
    average = gvar.dataset.avg_data({"Gamma5 0,0,0": samples}) | {"about": {}}
    gvar.dump(dict(average), "exported/average.gvar.json")
    dims = ("config", "source", "gamma", "momentum", "time")
    correlator = xarray.DataArray(
        samples[:, None, None, None, :].astype(complex), dims=dims, coords={"gamma": ["Gamma5"]}
    )
    monkeypatch.setattr("pipeline.open_result", lambda *_: xarray.Dataset({"correlator": correlator}))
    session: dict[str, Any] = {}
    for kind, code in blocks("fits"):
        if kind == "python":
            exec(compile(code, "fits", "exec", dont_inherit=True), session)
    energy = session["fit"].p["dE"][0]
    assert abs(energy.mean - 1.0) < 4 * energy.sdev
