"""Tests with the lowest versions of all dependencies that pyproject.toml states:

    python tests/oldest_versions.py [--python python3.12] [--newest] [TESTS ...]

They are installed into a new environment (a minute or two, 1 GB), which is left there for a look. `--newest`
takes the newest versions that pyproject.toml allows instead: for another Python.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("test", "s3")
CUDA = ("cupy", "nvidia")
"""Beginnings of the names of packages that CPU tests do not need: half a gigabyte."""

QUICK = (
    "tests/lqcd/test_notebook.py",
    "tests/lqcd/gauge",
    "tests/lqcd/analysis",
    "tests/lqcd/lattice/test_gauge_files.py",
    "tests/lqcd/solvers/test_krylov_solvers.py",
    "tests/pipeline/test_runs.py",
    "tests/pipeline/test_results.py",
    "tests/pipeline/test_chunk_store.py",
    "tests/pipeline/test_dashboard_pages.py",
    "tests/pipeline/test_object_storage.py",
    "tests/workflows/test_schema.py",
    "tests/workflows/test_wrong_inputs.py",
    "tests/workflows/test_command_line.py",
    "tests/workflows/test_exports.py",
    "tests/workflows/test_exported_files.py",
)
"""Something of every dependency: arrays, kernels, stores, clusters, schemas, commands, pages, exports."""


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--python", default=sys.executable, help="an interpreter (default: this one)")
    arguments.add_argument("--newest", action="store_true", help="the newest versions instead of the lowest")
    arguments.add_argument("tests", nargs="*", default=QUICK, help="files of tests (default: a quick choice)")
    chosen = arguments.parse_args()

    folder = Path(tempfile.mkdtemp(prefix="quarkline-versions-"))
    subprocess.run([chosen.python, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    wanted = [str(requirement if chosen.newest else lowest(requirement)) for requirement in requirements()]
    print(python, *sorted(wanted), sep="\n  ", flush=True)
    subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "-e", ROOT], check=True)
    tests = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen.tests]
    return subprocess.run(tests, cwd=ROOT, check=False).returncode


def requirements() -> Iterator[Requirement]:
    """What the package and its tests on a CPU need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [text for extra in EXTRAS for text in project["optional-dependencies"][extra]]
    for text in project["dependencies"] + extras:
        requirement = Requirement(text)
        if requirement.name != project["name"] and not requirement.name.startswith(CUDA):
            yield requirement


def lowest(requirement: Requirement) -> Requirement:
    """The lowest version that a requirement allows; one without a lower bound is left as it is."""
    bounds = [bound.version for bound in requirement.specifier if bound.operator in (">=", "==")]
    return Requirement(f"{requirement.name}=={bounds[0]}") if bounds else requirement


if __name__ == "__main__":
    raise SystemExit(main())
