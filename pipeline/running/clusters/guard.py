"""Scripts that start workers of this machine: every worker imports them first, as Python's spawn does."""

from __future__ import annotations

import sys
from multiprocessing import current_process


def refuse_repeated_script() -> None:
    """End a worker that came to a run while it imported the script that starts it."""
    if getattr(current_process(), "_inheriting", False):
        raise SystemExit(1)


def remedy_of_failed_start() -> str:
    """Advice for workers that end while they start."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    if not script:
        return "their own messages say why"
    return (
        f'workers import {script}, so what it runs must stand under `if __name__ == "__main__":`; if it '
        "does, their own messages say why"
    )
