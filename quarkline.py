"""The command `quarkline`, in a module of a name that no other distribution has.

Its packages have names that others have, too: where Python finds one of those first, a sentence says so.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("pipeline", "stages", "workflows")


def stranger() -> str:
    """A sentence on the first of the packages that is not the one beside this module; '' if there is none."""
    here = Path(__file__).resolve().parent
    for name in PACKAGES:
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin != here / name / "__init__.py":
            return (
                f"quarkline's package `{name}` is in {here}, but Python finds {origin or 'none'} under that "
                "name: install quarkline into an environment of its own, or take that folder off PYTHONPATH"
            )
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line; returns its exit code."""
    if fault := stranger():
        print(f"error: {fault}", file=sys.stderr)
        return 2
    return int(import_module("workflows.command").main(arguments))


if __name__ == "__main__":
    sys.exit(main())
