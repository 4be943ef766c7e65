"""The folder in which a user's measurements and certificates are kept, of engine and library alike."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "QUARKLINE_CACHE"


def cache_folder() -> Path:
    """$QUARKLINE_CACHE, or quarkline in $XDG_CACHE_HOME, or in ~/.cache."""
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(shared) if os.path.isabs(shared) else Path.home() / ".cache") / "quarkline"
