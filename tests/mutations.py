"""Changes of the code, each of which some test must notice: the rows of `mutations.yaml`.

    python tests/mutations.py [--list] [TEXT ...]

One change after the other is made in a copy of the checkout, and its tests are run there. TEXT: only rows
that contain it. The exit code is 1 where a change survives its tests, or its text is not in the file once.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import dask.array  # noqa: F401  what most tests import, once: each run of tests is a fork
import distributed  # noqa: F401
import numba  # noqa: F401
import pytest
import scipy.linalg  # noqa: F401
import xarray  # noqa: F401
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
KILLED = "killed by "
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".site", ".*_cache", "*-store", "report")


@dataclass(frozen=True)
class Mutation:
    """A change of a file, and the tests that must notice it."""

    file: str
    old: str
    new: str
    tests: str

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file}: {old} -> {new or 'nothing'}"

    def verdict(self, copy: Path) -> str:
        """`killed by TEST`, or what else became of it, in a copy of the checkout."""
        path = copy / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            return f"MOVED: the text is there {text.count(self.old)} times"
        path.write_text(text.replace(self.old, self.new))
        try:
            killer = failing(copy, self.tests.split())
        finally:
            path.write_text(text)
        return f"{KILLED}{killer}" if killer else "SURVIVED"


def failing(copy: Path, tests: list[str]) -> str:
    """The first test that fails in a copy, or the last line of a run that ends without; '' if none does."""
    output = copy.parent / "output"
    if not (child := os.fork()):
        os.chdir(copy)
        with output.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.path[0] = os.environ["PYTHONPATH"] = str(copy)
        code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", *tests])
        sys.stdout.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == pytest.ExitCode.OK:
        return ""
    text = output.read_text(errors="replace")
    if code in (pytest.ExitCode.NO_TESTS_COLLECTED, pytest.ExitCode.USAGE_ERROR):
        raise SystemExit(f"none of {' '.join(tests)} is run:\n{text[-400:]}")
    found = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", text, re.MULTILINE)
    return found[1] if found else (text.splitlines() or ["it ended without a word"])[-1]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--list", action="store_true", help="only print the rows")
    arguments.add_argument("text", nargs="*", help="of the rows to try (default: all)")
    chosen = arguments.parse_args()
    rows = [Mutation(*row) for row in YAML(typ="safe").load(Path(__file__).with_suffix(".yaml"))]
    rows = [row for row in rows if not chosen.text or any(text in str(row) for text in chosen.text)]
    if chosen.list:
        print(*rows, sep="\n")
        return 0
    verdicts: list[str] = []
    with tempfile.TemporaryDirectory(prefix="quarkline-mutations-") as folder:
        copy = Path(folder) / "quarkline"
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        for number, row in enumerate(rows, start=1):
            began = time.monotonic()
            verdicts.append(row.verdict(copy))
            print(f"{number:3} {time.monotonic() - began:4.0f} s  {verdicts[-1]}  |  {row}", flush=True)
        killers = {text.removeprefix(KILLED) for text in verdicts if text.startswith(KILLED)}
        broken = failing(copy, sorted(killers)) if killers else ""
    survivors = [text for text in verdicts if not text.startswith(KILLED)]
    print(f"{len(rows)} changes, {len(rows) - len(survivors)} killed")
    if broken:
        print(f"{broken} fails without a change, too")
    return 1 if survivors or broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
