"""What the contract of the kernels promises: every implementation, and types that catch slips."""

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType

import numpy as np
import pytest

from stages.lqcd.kernels import block_blas
from stages.lqcd.kernels.dispatch import around_kernels, implementation_of, kernel, kernels_of

ROOT = Path(__file__).resolve().parents[3]
KERNELS = ROOT / "stages" / "lqcd" / "kernels"
STARTED = re.compile(r'kernel\(\s*"(\w+)\.(\w+)"')
FAMILIES = sorted(path.stem for path in KERNELS.glob("*.py") if STARTED.search(path.read_text()))
LIBRARIES = {"xp"}
"""Parameters that only say where to compute."""

REFUSED = {("cpu", "wilson_galerkin")}
"""Packages and families of which they only say, by `takes`, that they have none."""


def started() -> list[tuple[str, str]]:
    """Family and function of every kernel that a contract starts."""
    return [found for family in FAMILIES for found in STARTED.findall((KERNELS / f"{family}.py").read_text())]


def implementation(package: str, family: str) -> ModuleType:
    if package == "cuda":
        pytest.importorskip("cupy")
    return import_module(f"stages.lqcd.kernels.{package}.{family}")


@pytest.mark.parametrize("package", ["cpu", pytest.param("cuda", marks=pytest.mark.nvrtc)])
def test_every_kernel_is_implemented_with_the_parameters_of_its_contract(package: str) -> None:
    assert len(started()) > 45
    for family, function in started():
        if (package, family) in REFUSED and function != "takes":
            continue
        contract = getattr(import_module(f"stages.lqcd.kernels.{family}"), function)
        implementation(package, family)
        own = implementation_of(f"{family}.{function}", package)
        expected = [name for name in inspect.signature(contract).parameters if name not in LIBRARIES]
        assert list(inspect.signature(own).parameters) == expected, f"{package}.{family}.{function}"


def test_the_oracle_has_no_kernel_that_the_contract_lacks() -> None:
    for path in (KERNELS / "reference").glob("*.py"):
        if path.stem != "__init__":
            assert path.stem in FAMILIES


def test_public_functions_of_a_contract_say_what_they_do() -> None:
    for family in FAMILIES:
        module = import_module(f"stages.lqcd.kernels.{family}")
        for name, value in vars(module).items():
            if isinstance(value, FunctionType) and value.__module__ == module.__name__ and name[0] != "_":
                assert value.__doc__, f"{family}.{name}"


def test_the_oracle_serves_inside_its_block_alone() -> None:
    def package() -> str:
        return kernel("block_blas.dots", np.ndarray).__module__.split(".")[-2]

    assert package() == "cpu"
    with kernels_of("reference"):
        assert package() == "reference"
        assert kernel("link_fields.boundary_signs", np.ndarray).__module__.split(".")[-2] == "cpu"
    assert package() == "cpu"


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(TypeError, match=r"NumPy or a CuPy array, got builtins\.list"):
        kernel("block_blas.dots", list)


def test_calls_can_be_watched() -> None:
    calls: list[str] = []

    def watched(implementation):  # type: ignore[no-untyped-def]
        def call(*operands):  # type: ignore[no-untyped-def]
            calls.append(implementation.__name__)
            return implementation(*operands)

        return call

    x = np.ones((5, 2), complex)
    with kernels_of("reference"):
        with around_kernels(watched):
            block_blas.norms2(x)
        block_blas.dots(x, x)
    assert calls == ["norms2"]


MISSPELT = """
import numpy as np

from stages.lqcd.kernels import block_blas, lane_blas

x = np.ones((4, 3, 2), complex)
right = block_blas.dots(x, x)
kernel = block_blas.dotz(x, x)
argument = block_blas.rotate(x, coefficients=right, out=x)
count = block_blas.dots(x)
kind = lane_blas.lane_dots(x, "y")
attribute = block_blas.norms2(x).shapes
"""


@pytest.mark.house
def test_the_type_checker_sees_a_misspelt_kernel_and_a_misspelt_argument(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "snippet.py").write_text(MISSPELT)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir"]
    environment = {"MYPYPATH": str(ROOT), "PATH": ""}
    answer = subprocess.run(
        [*command, str(tmp_path / "cache"), str(tmp_path / "snippet.py")],
        capture_output=True, text=True, cwd=ROOT, env=environment, timeout=280,
    )  # fmt: skip
    wrong = {int(line.split(":")[1]) for line in answer.stdout.splitlines() if ": error:" in line}
    assert wrong == {8, 9, 10, 11, 12}, answer.stdout + answer.stderr
