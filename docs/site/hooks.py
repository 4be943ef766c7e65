"""What MkDocs adds to the pages in `docs`: keys made from the schemas, and the sources that pages link to."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from workflows.catalogue import definition_of
from workflows.names import OWN

sys.path.insert(0, str(Path(__file__).parent))
from key_reference import key_reference

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(!?)\[((?:[^\]`]|`[^`]*`)+)\]\(([^)#\s]+)(#[^)]*)?\)")
KEYS = """# Keys of `{name}`

Made from the schema that `quarkline schema {name}` prints; `quarkline init {name}` writes a commented file.

{reference}
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and files that are not in `docs`."""
    for name in OWN:
        reference = key_reference(definition_of(name).schema.model_json_schema())
        content = KEYS.format(name=name, reference=reference)
        files.append(File.generated(config, f"keys_{name}.md", content=content))
    pages = [file.content_string for file in files.documentation_pages()]
    for source in {source_of(match[3]) for page in pages for match in LINK.finditer(page)} - {None}:
        files.append(File.generated(config, as_text(source), content=source.read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links out of `docs` to the copies in the site: keys, sources."""

    def replaced(match: re.Match[str]) -> str:
        image, text, target, _ = match.groups()
        path = (ROOT / "docs" / target).resolve()
        if path.name == "schema.py" and path.parent.name in OWN:
            return f"[{text}](keys_{path.parent.name}.md)"
        source = source_of(target)
        return f"{image}[{text}]({as_text(source)})" if source else match[0]

    return LINK.sub(replaced, markdown)


def source_of(target: str) -> Path | None:
    """The file of this repository outside of `docs` or in `docs/notes` that a link leads to."""
    path = (ROOT / "docs" / target).resolve()
    inside = path.is_file() and path.is_relative_to(ROOT) and "://" not in target
    shown = path.is_relative_to(ROOT / "docs") and not path.is_relative_to(ROOT / "docs" / "notes")
    return path if inside and not shown else None


def as_text(source: Path) -> str:
    """Address in the site of the copy of a source."""
    return f"sources/{source.relative_to(ROOT)}.txt"
