"""The documentation: the site builds without network, stores merge as told, messages are the code's."""

from __future__ import annotations

import re
import shutil
from importlib import import_module
from pathlib import Path

import pytest

from pipeline import Place, Store, Workflow, plan, run, verify
from stages.ensemble.configuration import gauge_observables, heatbath_configuration
from workflows.catalogue import definition_of
from workflows.names import OWN

ROOT = Path(__file__).parents[2]
LINES = re.DOTALL | re.MULTILINE
KEYS_PAGES = {f"keys_{name}" for name in OWN}


@pytest.mark.house
def test_pages_take_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.glob("*.html"))
    assert len(pages) > 25
    for page in pages:
        text = page.read_text()
        assert not re.findall(r'(?:src|href)="(?:https?:)?//[^"]*\.(?:js|css|woff2?|png)"', text), page.name
        assert '<meta name="viewport"' in text


@pytest.mark.house
def test_sources_are_no_broken_links(site: Path) -> None:
    for page in set(site.glob("*.html")) - {site / "404.html"}:
        for target in re.findall(r'href="([^"#:?]+)[#?"]', page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} leads to {target}"


@pytest.mark.house
def test_pictures_are_in_the_site(site: Path) -> None:
    pictures = re.findall(r'<img[^>]* src="([^"]+)"', (site / "pages.html").read_text())
    assert len(pictures) == 10 and all((site / picture).is_file() for picture in pictures)


@pytest.mark.house
@pytest.mark.parametrize("name", OWN)
def test_the_reference_has_every_key(site: Path, name: str) -> None:
    text = (site / f"keys_{name}.html").read_text()
    schema = definition_of(name).schema.model_json_schema()
    for section in (schema, *schema["$defs"].values()):
        for key in section.get("properties", {}):
            assert f"<code>{key}</code>" in text, key


def test_links_of_pages_and_notes_lead_to_a_file_and_a_heading() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    prose = {page: re.sub(r"^(?:```.*?^```|    .*?)$", "", page.read_text(), flags=LINES) for page in pages}
    heads = {page: re.findall(r"^#+ +(.*)$", text, re.MULTILINE) for page, text in prose.items()}
    for page, text in prose.items():
        for target, anchor in re.findall(r"\]\(([^)\s#:]*)(?:#([^)\s]*))?\)", text):
            other = (page.parent / target).resolve() if target else page
            assert other.exists() or other.stem in KEYS_PAGES, f"{page} leads to {target}"
            anchors = [
                re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads.get(other, [])
            ]
            assert not anchor or anchor in anchors, f"{page} leads to {target}#{anchor}"


def test_a_table_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "site"))
    key_reference = import_module("key_reference").key_reference
    lines = key_reference(definition_of("laph_mesons").schema.model_json_schema()).splitlines()
    assert "## `smearing`" in lines
    assert "| `kind` | `stout`, `ape`, `hyp` | required | " in "\n".join(lines)
    at = lines.index("## `distillation`")
    rows = [line for line in lines[at:] if line.startswith("| `vectors` ")]
    assert rows[0].startswith("| `vectors` | whole number, at least 1 | required | Lowest eigenvectors")


def ensemble(configurations: list[str]) -> Workflow:
    """Small configurations and their observables."""
    workflow = Workflow("merged")
    place, chain = Place("gauge", over={"config": configurations}), {"seed": 3, "sweeps": 1}
    gauge = workflow.add(
        heatbath_configuration, place=place, extents=(4, 4, 4, 2), beta=5.9, overrelaxation=0, **chain
    )
    workflow.add(gauge_observables, gauge, place=Place("observables"))
    return workflow


def test_stores_are_merged_by_copying(tmp_path: Path, scheduler: str) -> None:
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    for store, configurations in ((here, ["a", "b"]), (there, ["b", "c"])):
        assert run(plan(ensemble(configurations), store), store, cluster=scheduler).exit_status == 0
    for path in sorted(there.path.rglob("*")):
        inside = path.relative_to(there.path)
        target = here.path / inside
        if path.is_file() and not inside.parts[0].startswith(".") and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    assert not plan(ensemble(["a", "b", "c"]), here).missing
    assert verify(here).checked == 6 and not verify(here).damaged


def test_messages_of_the_page_on_trouble_are_those_of_the_code() -> None:
    """Each is in the sources, whose literals are joined over their lines."""
    folders = (ROOT / name for name in ("pipeline", "stages", "workflows"))
    sources = "".join(path.read_text() for folder in folders for path in sorted(folder.rglob("*.py")))
    joined = re.sub(r'(?<!")"\s*\n\s*f?"(?!")', "", sources)
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    messages = re.findall(r"^\*\*`([^`]+)`\*\*", page, re.MULTILINE)
    assert len(messages) >= 20
    assert [message for message in messages if message not in joined] == []
