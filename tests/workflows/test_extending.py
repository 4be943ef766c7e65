"""What docs/extending.md shows runs as shown: its files are written to a folder, its snippets executed."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from importlib.readers import MultiplexedPath
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tiny_project import CommandLine

from pipeline.running.clusters import Demand
from pipeline.running.clusters.local import Local

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()


class Code(NamedTuple):
    """A fenced block of the page: its language, the file that its first line names, and its text."""

    language: str
    file: str | None
    text: str


def blocks() -> list[Code]:
    named = re.compile(r"(?:#|//) (\S+\.\w+)\n")
    found = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    matches = [(language, named.match(text), text) for language, text in found]
    return [Code(language, match and match[1], text) for language, match, text in matches]


EXCERPT = re.compile(r"# excerpt of (\S+)\n")
FILES = [code for code in blocks() if code.file]
EXCERPTS = [(match[1], code.text[match.end() :]) for code in blocks() if (match := EXCERPT.match(code.text))]
SNIPPETS = [
    code.text
    for code in blocks()
    if code.language == "python" and not code.file and not EXCERPT.match(code.text)
]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the page's own package, importable here and by workers."""
    folder = tmp_path_factory.mktemp("extending")
    for code in FILES:
        if code.file:
            (folder / code.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / code.file).write_text(code.text)
    (folder / "polyakov" / "__init__.py").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", str(folder), prepend=":")
        yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "polyakov"]:
        del sys.modules[name]


@pytest.fixture
def package(written: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, in which the test runs."""
    monkeypatch.chdir(written)
    return written


@pytest.fixture(scope="module")
def one_cluster(written: Path) -> Iterator[None]:
    """Runs share a worker."""
    with Local(workers=1).open(Demand(1, 0)) as client, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Local, "open", lambda *_: nullcontext(client))
        yield


def execute(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, "docs/extending.md", "exec", dont_inherit=True), names)
    return names


def test_a_stage_as_a_function(package: Path) -> None:
    names = execute(SNIPPETS[0])
    links, lattice = names["gauge"].links, names["gauge"].lattice
    start, ahead = np.arange(lattice.half_volume), lattice.neighbour(0, 3, 1)
    product = links[3, 0, start] @ links[3, 1, ahead]
    trace = np.einsum("xaa->x", product).mean() / 3
    np.testing.assert_allclose(names["loop"], [trace.real, trace.imag], rtol=1e-13)


@pytest.mark.usefixtures("one_cluster")
def test_stages_wired_by_hand(package: Path) -> None:
    names = execute(SNIPPETS[1])
    assert names["outcome"].exit_status == 0
    assert list(names["average"].part.values) == ["re", "im"]
    loops = names["open_result"](names["store"], "polyakov_loop").loop
    np.testing.assert_allclose(names["average"].loop, loops.mean("config"), rtol=1e-14)
    np.testing.assert_allclose(names["average"].error, loops.std("config", ddof=1) / np.sqrt(3), rtol=1e-12)
    cost = names["loop"].cost
    assert cost.memory == 5.5 * 128 * 144 and cost.stored > 0


@pytest.fixture
def installed(package: Path) -> Path:
    """The same with what installing it leaves behind: the metadata of its entry points."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    metadata = package / f"{project['name']}-{project['version']}.dist-info"
    metadata.mkdir()
    groups = {group: entries.items() for group, entries in project["entry-points"].items()}
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in entries) for group, entries in groups.items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1\n")
    return package


@pytest.mark.usefixtures("one_cluster")
def test_a_workflow_of_another_package(installed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quarkline = CommandLine(capsys)
    planned = quarkline("plan", "polyakov.yaml", "--json")
    assert planned.code == 0 and '"polyakov_loop"' in planned.out
    answer = quarkline("run", "polyakov.yaml")
    assert answer.code == 0, answer.err
    page = (installed / "report-loops" / "index.html").read_text()
    assert "<h2>Polyakov loop</h2>" in page and "<h2>Gauge configurations</h2>" in page
    assert quarkline("export", "polyakov.yaml", "--format", "hdf5").code == 0
    assert (installed / "report-loops" / "mean_loop.h5").exists()
    text = (installed / "polyakov.yaml").read_text()
    (installed / "wrong.yaml").write_text(text.replace("direction: 3", "direction: 4"))
    wrong = quarkline("run", "wrong.yaml")
    assert wrong.code == 2 and "`direction` (line 5) is 4, expected at most 3" in wrong.err
    (installed / "wrong.yaml").write_text("workflow: polyakow\n")
    assert "did you mean `polyakov`?" in quarkline("run", "wrong.yaml").err


@pytest.mark.parametrize(("file", "text"), EXCERPTS)
def test_excerpts_stand_in_the_code(file: str, text: str) -> None:
    assert text in (ROOT / file).read_text()


@pytest.fixture
def kernels(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's kernel among those of the library."""
    names = ["", ".reference", ".cpu", *([".cuda"] if find_spec("cupy") else [])]
    for name in names:
        module = import_module(f"stages.lqcd.kernels{name}")
        folder = package / Path(*module.__name__.split("."))
        monkeypatch.setattr(module, "__path__", [*module.__path__, str(folder)])
    yield package / "stages" / "lqcd" / "kernels"
    for name in [name for name in sys.modules if name.endswith(".link_product")]:
        parent, _, child = name.rpartition(".")
        delattr(sys.modules[parent], child)
        del sys.modules[name]


def test_a_kernel_and_its_oracle(kernels: Path) -> None:
    from pipeline import InputError

    names = execute(SNIPPETS[-1])
    np.testing.assert_allclose(names["product"], names["a"] @ names["b"], rtol=1e-13)
    np.testing.assert_allclose(names["product"], names["expected"], rtol=1e-13)
    with pytest.raises(InputError, match="b must be a C-contiguous complex128 array"):
        names["link_product"].multiply(names["a"], names["b"].astype(np.complex64), names["product"])


@pytest.mark.nvrtc
def test_a_kernel_on_a_gpu_compiles(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy", reason="compiling CUDA needs cupy and nvidia-cuda-nvrtc")
    from stages.lqcd.kernels.cuda import compile as nvrtc
    from support.nvrtc_compiler import compile_only

    folders = MultiplexedPath(Path(nvrtc.__file__).parent, kernels / "cuda")
    monkeypatch.setattr(nvrtc, "files", lambda package: folders)
    launch = import_module("stages.lqcd.kernels.cuda.link_product").launch
    for dtype in (np.dtype(np.complex64), np.dtype(np.complex128)):
        kernel = launch(1000, dtype)
        assert kernel.grid[0] * kernel.threads >= 1000
        usage = compile_only(kernel.file, [kernel.instance], "sm_90")[kernel.instance]
        assert usage.spilled_bytes == 0


@pytest.mark.gpu
def test_a_kernel_on_a_gpu(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cupy = pytest.importorskip("cupy")
    from stages.lqcd.kernels.cuda import compile as nvrtc

    folders = MultiplexedPath(Path(nvrtc.__file__).parent, kernels / "cuda")
    monkeypatch.setattr(nvrtc, "files", lambda package: folders)
    names = execute(SNIPPETS[-1])
    out = cupy.empty_like(cupy.asarray(names["a"]))
    names["link_product"].multiply(cupy.asarray(names["a"]), cupy.asarray(names["b"]), out)
    np.testing.assert_allclose(out.get(), names["expected"], rtol=1e-13)
