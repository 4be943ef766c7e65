"""What the README shows runs as shown."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tiny_project import TINY

from workflows.command import PANELS
from workflows.g2_disconnected.schema import G2Parameters
from workflows.hisq_mesons.schema import HisqMesonParameters
from workflows.laph_mesons.schema import LaphParameters
from workflows.mesons.schema import MesonParameters
from workflows.parameter_file import read_parameter_file

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
DOCS = sorted(ROOT.glob("docs/**/*.md"))
PAGES = ["README.md", "CHANGELOG.md", *(str(page.relative_to(ROOT)) for page in DOCS)]
YAML_SNIPPETS = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def execute(code: str, **names: Any) -> dict[str, Any]:
    exec(compile(code, "README.md", "exec", dont_inherit=True), names)
    return names


def test_two_commands_in_one_line_each() -> None:
    demo, tests = re.findall(r"^```\n(python3 -m venv .*)\n```$", README, re.MULTILINE)
    assert demo.endswith("&& .venv/bin/quarkline run workflows/g2_disconnected.yaml")
    assert "'.[test]'" in tests and "pytest" in tests


def test_opening_a_result(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.parent / "store").rename(project.parent / "g2-store")
    monkeypatch.chdir(project.parent)
    names = execute(PYTHON[0] + "loops = open_result('g2-store', 'loops_light').current")
    assert names["average"].correlator.dims == ("flavour", "time")
    assert names["light"].correlator.dims == ("time",)
    assert list(names["loops"].direction) == ["x", "y", "z", "t"]
    assert names["loops"].dims == ("config", "noise", "probe", "direction", "time")


def test_stages_as_functions() -> None:
    names = execute(PYTHON[1])
    assert names["loops"].current.shape == (2, 1, 4, 8)
    assert all(number > 0 for number in names["at"].statistics["iterations"])


def test_section_on_low_modes(tmp_path: Path) -> None:
    (snippet,) = (text for text in YAML_SNIPPETS if text.startswith("deflation:"))
    file = tmp_path / "g2.yaml"
    file.write_text(TINY + snippet)
    section = G2Parameters.read(read_parameter_file(file)).deflation
    assert section is not None
    assert section.model_dump() == YAML(typ="safe").load(snippet)["deflation"]


def test_a_file_of_mesons(tmp_path: Path) -> None:
    (snippet,) = (text for text in YAML_SNIPPETS if text.startswith("workflow: mesons"))
    file = tmp_path / "mesons.yaml"
    file.write_text(snippet)
    assert MesonParameters.read(read_parameter_file(file)).solves.solver == "auto"


def test_a_file_of_hisq_mesons(tmp_path: Path) -> None:
    (snippet,) = (text for text in YAML_SNIPPETS if text.startswith("workflow: hisq_mesons"))
    file = tmp_path / "hisq.yaml"
    for text in (
        snippet,
        *re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "hisq_mesons.md").read_text(), re.DOTALL),
    ):
        file.write_text(text)
        assert HisqMesonParameters.read(read_parameter_file(file)).mesons.displaced


@pytest.mark.parametrize("section", ["noise", "insertions"])
def test_a_file_of_distillation(tmp_path: Path, section: str) -> None:
    (snippet,) = (text for text in YAML_SNIPPETS if text.startswith("workflow: laph_mesons"))
    (more,) = re.findall(rf"`({section}: [^`]*)`", README)
    file = tmp_path / "laph.yaml"
    file.write_text(snippet + more)
    assert getattr(LaphParameters.read(read_parameter_file(file)), section) is not None


def test_files_instead_of_heatbath(tmp_path: Path) -> None:
    (snippet,) = (text for text in YAML_SNIPPETS if text.startswith("ensemble:"))
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
