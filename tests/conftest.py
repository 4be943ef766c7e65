"""Fixtures that every part of the test suite shares."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """Folder of reference configurations and outputs of other codes; skips where it is absent."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("QUARKLINE_REFERENCE_DATA", default))
    if not (folder / "expected.json").exists():
        pytest.skip(f"no reference data at {folder} (set QUARKLINE_REFERENCE_DATA to its folder)")
    return folder


@pytest.fixture(scope="session")
def expected(reference_data: Path) -> dict[str, dict]:
    """Entries of the reference data's expected.json by their id."""
    return {entry["id"]: entry for entry in json.loads((reference_data / "expected.json").read_text())}
