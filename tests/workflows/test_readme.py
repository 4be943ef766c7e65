"""What the README shows runs as shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML
from tiny_project import TINY

import quarkline as ql
from stages.lqcd.lattice.formats import write_ildg
from workflows.command import PANELS
from workflows.g2_connected.schema import ConnectedParameters
from workflows.g2_disconnected.schema import G2Parameters
from workflows.hisq_mesons.schema import HisqMesonParameters
from workflows.parameter_file import read_parameter_file

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCS = sorted(ROOT.glob("docs/**/*.md"))
PAGES = ["README.md", "CHANGELOG.md", *(str(page.relative_to(ROOT)) for page in DOCS)]
PLOTTED = [(1, -1), (1, 1), (3, -1), (3, 1), (1, 0), (3, 0), (5, -1), (5, 1), (5, 0)]
"""Columns of the demo's table in the order in which the picture draws them: lower and upper ends, markers."""


def yaml_of(page: str) -> list[str]:
    """What a page shows of parameter files."""
    return re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def python_of(page: str) -> str:
    """The one block of Python of a page."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return code


def execute(code: str, **names: Any) -> dict[str, Any]:
    exec(compile(code, "README.md", "exec", dont_inherit=True), names)
    return names


def test_it_is_one_screen_and_a_half_with_two_commands() -> None:
    assert len(README.split()) <= 900

    demo, tests = re.findall(r"^```\n(python3 -m venv .*)\n```$", README, re.MULTILINE)
    assert demo.endswith("&& .venv/bin/quarkline run workflows/g2_disconnected.yaml")
    assert "'.[test]'" in tests and "pytest" in tests


def test_the_picture_shows_the_numbers_of_the_demo() -> None:
    """Markers lie where the demo's table has its values, on one linear scale in each of the two axes."""
    picture = (ROOT / "docs" / "g2_disconnected.svg").read_text()
    table = np.loadtxt(ROOT / "docs" / "figures" / "g2_disconnected.txt")
    groups = re.findall(r"<g id=.line2d_\d+.>(.*?)</g>\s*</g>", picture, re.DOTALL)
    shown = [re.findall(r"<use [^>]*?y=.([\d.]+)", group) for group in groups]
    heights = [np.array(points, float) for points in shown if len(points) == len(table)]
    values = [table[:, flavour] + sign * table[:, flavour + 1] for flavour, sign in PLOTTED]
    for chosen in ([0, 1, 2, 3, 4, 5], [6, 7, 8]):
        below, value = (
            np.concatenate([heights[k] for k in chosen]),
            np.concatenate([values[k] for k in chosen]),
        )
        line = np.polyfit(value, below, 1)
        assert line[0] < 0 and abs(np.polyval(line, value) - below).max() < 0.01


def test_opening_a_result(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.parent / "store").rename(project.parent / "g2-store")
    monkeypatch.chdir(project.parent)
    names = execute(python_of("docs/index.md"))
    assert names["average"].correlator.dims == ("flavour", "time")
    assert names["light"].correlator.dims == ("time",)
    assert list(names["loops"].direction) == ["x", "y", "z", "t"]
    assert names["loops"].dims == ("config", "noise", "probe", "direction", "time")


def test_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    lattice = ql.Lattice((4, 4, 4, 4))
    links = ql.thermalised(lattice, 6.0, 5, "notebook", sweeps=5, overrelaxation=1, xp=np)
    write_ildg("conf.ildg", links, lattice, precision=64)
    assert execute(python_of("README.md"))["solution"].residual.max() <= 1e-10
    assert float(capsys.readouterr().out.split()[-1]) <= 1e-10


def test_a_file_of_g2_connected(tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text(yaml_of("docs/g2_connected.md")[0])
    assert ConnectedParameters.read(read_parameter_file(tmp_path / "file.yaml")).has_modes("strange")


def test_a_file_of_hisq_mesons(tmp_path: Path) -> None:
    file = tmp_path / "hisq.yaml"
    for text in yaml_of("docs/hisq_mesons.md"):
        file.write_text(text)
        assert HisqMesonParameters.read(read_parameter_file(file)).mesons.displaced


@pytest.mark.parametrize("page", ["README.md", "docs/configurations.md"])
def test_files_instead_of_heatbath(page: str, tmp_path: Path) -> None:
    (snippet,) = yaml_of(page)
    file = tmp_path / "g2.yaml"
    file.write_text(re.sub(r"ensemble:\n  heatbath:.*\n", snippet, TINY))
    ensemble = G2Parameters.read(read_parameter_file(file)).ensemble
    section = YAML(typ="safe").load(snippet)["ensemble"]
    assert ensemble.files == tuple(section["files"]) and ensemble.exclude == tuple(section["exclude"])


@pytest.mark.parametrize("page", PAGES)
def test_links_and_paths_lead_somewhere(page: str) -> None:
    """Relative links, and the project's own files that are named in backticks."""
    text = (ROOT / page).read_text()
    links = re.findall(r"\]\(((?:\.\./)*[\w./]+\.\w+|\.\./[\w./]+)(?:#[\w-]+)?\)", text)
    paths = re.findall(r"`((?:pipeline|stages|workflows|tests|docs)/[\w./]+)`", text)
    absent = [link for link in links if not (ROOT / page).parent.joinpath(link).exists()]
    assert absent + [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_pages_exist(page: str) -> None:
    """Measuring scripts and commands of `quarkline` that a page names."""
    text = (ROOT / page).read_text()
    scripts = re.findall(r"python\s+(tests/benchmarks/[a-z]\w*\.py)", text)
    assert [script for script in scripts if not (ROOT / script).exists()] == []
    existing = set().union(*PANELS.values())
    assert set(re.findall(r"`quarkline ([a-z]+)", text)) <= existing
