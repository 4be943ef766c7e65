"""What MkDocs adds to the pages in `docs`: the README as the first one, and keys made from the schemas."""

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
    """Add the pages that have no file of their own in `docs`."""
    pages = {"index.md": (ROOT / "README.md").read_text(encoding="utf-8")}
    for name in OWN:
        reference = key_reference(definition_of(name).schema.model_json_schema())
        pages[f"keys_{name}.md"] = KEYS.format(name=name, reference=reference)
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leave links that lead into the site, and the text alone of those that lead to sources."""
    here = ROOT if page.file.src_uri == "index.md" else ROOT / "docs"

    def replaced(match: re.Match[str]) -> str:
        image, text, target, anchor = match.groups()
        if "://" in target:
            return match[0]
        path = (here / target).resolve()
        if path == ROOT / "README.md":
            return f"[{text}](index.md{anchor or ''})"
        if path.name == "schema.py" and path.parent.name in OWN:
            return f"[{text}](keys_{path.parent.name}.md)"
        if path.is_relative_to(ROOT / "docs") and not path.is_relative_to(ROOT / "docs" / "notes"):
            return f"{image}[{text}]({path.relative_to(ROOT / 'docs')}{anchor or ''})"
        return text

    return LINK.sub(replaced, markdown)
