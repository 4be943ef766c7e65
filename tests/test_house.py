"""House rules, checked by their tools: lint, format, types, imports that point downwards."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("pipeline", "stages", "workflows")
TOOLS = {
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "types": ["mypy"],
    "imports": ["lint-imports"],
}
pytestmark = pytest.mark.house

SMALL_ARRAYS = {
    "stack": "coefficients of right-hand sides, matrices of eigenvectors",
    "tensordot": "matrices of eigenvectors",
    "where": "coefficients of right-hand sides",
    "exp2": "scales of right-hand sides",
    "frexp": "scales of right-hand sides",
    "ndarray": "a type",
    "cuda": "streams and memory of the device",
}
"""All that the library takes from NumPy or CuPy above its kernels, and for which small arrays."""

ASK_WHERE_AN_ARRAY_LIVES = {
    "stages/lqcd/dirac/laplacian.py",
    "stages/lqcd/dirac/staggered.py",
    "stages/lqcd/dirac/wilson.py",
    "stages/lqcd/gauge/origin.py",
    "stages/lqcd/multigrid/coarse_operator.py",
    "stages/lqcd/spectroscopy/distilled_mesons.py",
}
"""Modules above the kernels that call `array_module`: operators once, to say it to all others as `xp`."""


@pytest.fixture(scope="module")
def results() -> Iterator[dict[str, Future[subprocess.CompletedProcess[str]]]]:
    """What each tool says; all of them run at once, from the first test on."""
    with ThreadPoolExecutor(len(TOOLS)) as pool:
        yield {rule: pool.submit(run_tool, *command) for rule, command in TOOLS.items()}


def run_tool(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    installed = Path(sys.executable).parent / program
    if not installed.exists():
        pytest.fail(f"{program} is not installed beside {sys.executable}: pip install -e '.[house]'")
    return subprocess.run([installed, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("rule", TOOLS)
def test_tool_finds_nothing(rule: str, results: dict[str, Future[subprocess.CompletedProcess[str]]]) -> None:
    done = results[rule].result()
    assert done.returncode == 0, f"{' '.join(TOOLS[rule])}\n{done.stdout}{done.stderr}"


def test_no_array_library_on_fields() -> None:
    """Fields are allocated by `kernels.fields` and worked on by kernels: array calls are for small arrays."""
    taken = {
        str(path.relative_to(ROOT)): set(from_array_library(ast.parse(path.read_text())))
        for path in sorted((ROOT / "stages/lqcd").rglob("*.py"))
        if not path.is_relative_to(ROOT / "stages/lqcd/kernels")
    }
    allowed = {*SMALL_ARRAYS, "asked"}
    offenders = [f"{path}: {name}" for path, names in taken.items() for name in sorted(names - allowed)]
    assert not offenders, "\n".join(["make it a kernel, in stages/lqcd/kernels:", *offenders])
    assert {path for path, names in taken.items() if "asked" in names} == ASK_WHERE_AN_ARRAY_LIVES
    assert SMALL_ARRAYS.keys() <= set().union(*taken.values()), "an exception that nothing needs"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("xp.subtract(x, y, out=x)", "subtract"),
        ("take = array_module(x).take", "take"),
        ("self.A.xp.linalg.inv(x)", "linalg"),
        ("import cupy", "cupy"),
    ],
)
def test_array_library_on_a_field_is_noticed(code: str, name: str) -> None:
    assert name in set(from_array_library(ast.parse(code))) - SMALL_ARRAYS.keys()


def from_array_library(tree: ast.AST) -> Iterator[str]:
    """Names that a module takes from `xp`; "asked" if it calls `array_module`; "cupy" if it imports it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_array_library(node.value):
            yield node.attr
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "array_module"
        ):
            yield "asked"
        elif isinstance(node, ast.Import | ast.ImportFrom) and "cupy" in ast.unparse(node):
            yield "cupy"


def is_array_library(node: ast.AST) -> bool:
    """True for ``xp``, ``operator.xp`` and ``array_module(x)``."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).startswith("array_module")
    return (isinstance(node, ast.Name) and node.id == "xp") or (
        isinstance(node, ast.Attribute) and node.attr == "xp"
    )


def test_no_import_circle() -> None:
    """Not behind TYPE_CHECKING and not inside functions either: every import statement counts."""
    modules = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    graph = {name: imported_by(path) & modules.keys() - {name} for name, path in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"modules import each other: {' <- '.join(error.args[1])}")


def imported_by(path: Path) -> set[str]:
    """Names of the modules that a file imports, wherever in it; `from a import b` is `a.b` if that is one."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {alias.name for alias in node.names if is_module(node.module, alias.name)}
            names |= {f"{node.module}.{name}" for name in submodules}
            if len(submodules) < len(node.names):
                names.add(node.module)
    return names


def is_module(package: str, name: str) -> bool:
    folder = ROOT.joinpath(*package.split("."))
    return (folder / f"{name}.py").exists() or (folder / name / "__init__.py").exists()
