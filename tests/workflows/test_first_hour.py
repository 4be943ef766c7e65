"""The first hour of a new user, in a clean clone and a fresh environment: README and tutorial as typed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NO_INDEX = re.compile(r"No matching distribution|Could not find a version|ConnectionError|NewConnectionError")
SESSION = """\
import subprocess
def typed(code):
    print("$ " + code, flush=True)
    subprocess.run(["bash", "-euc", code], check=True)
"""
"""Beginning of a Python session beside which commands are typed in a shell."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def typed(code: str, folder: Path, *, activated: Path | None = None) -> str:
    """Output of lines typed into a fresh shell, which must all end with exit code 0."""
    kept = {name: os.environ[name] for name in os.environ if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    tools = [str(activated)] if activated else [str(folder.parent / "python")]
    environment = {**kept, "PATH": ":".join([*tools, kept["PATH"]]), "PIP_COMPILE": "0"}
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if "pip install" in code and ended.returncode and NO_INDEX.search(ended.stderr):
        pytest.skip("pip reaches no package index")
    assert ended.returncode == 0, f"{code}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    assert "Traceback" not in ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of what is committed, in which README's first command has run."""
    if not (shutil.which("git") and (ROOT / ".git").exists()):
        pytest.skip("this is no git checkout")
    folder = tmp_path_factory.mktemp("hour") / "quarkline"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, folder], check=True)
    (folder.parent / "python").mkdir()
    (folder.parent / "python" / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    install_and_demo, _ = re.findall(r"^```\n(python3 -m venv .*)\n```$", text_of("README.md"), re.MULTILINE)
    shown = typed(install_and_demo, folder)
    assert f"report: {folder}/report-g2/index.html" in shown
    return folder


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(page: str) -> list[tuple[str, str]]:
    """Kind and content of each block of a page."""
    return BLOCK.findall(text_of(page))


def test_then_try(clone: Path) -> None:
    """The block below the demo, in a fresh shell."""
    (block,) = (code for _, code in blocks("README.md") if code.startswith(". .venv/bin/activate"))
    shown = typed(block + "quarkline --help\nquarkline --version\n", clone)
    assert "workflow g2_disconnected" in shown and "0 to compute" in shown
    assert (clone / "my-mesons.yaml").is_file() and list(clone.rglob("average.h5"))
    assert json.loads((clone / "mesons.json").read_text())["properties"]["quark"]
    assert shown.rstrip().endswith(f"quarkline {version('quarkline')}")


def test_in_python(clone: Path) -> None:
    """README's recipes for notebooks, as scripts: one opens the demo's results, one calls stages."""
    recipes = [code for kind, code in blocks("README.md") if kind == "python"]
    assert len(recipes) >= 2
    for number, code in enumerate(recipes):
        (clone / f"recipe_{number}.py").write_text(code)
        typed(f".venv/bin/python recipe_{number}.py", clone)


def test_tutorial(clone: Path) -> None:
    """All blocks in order in an empty folder, commands in shells, Python in one session."""
    folder = clone.parent / "campaign"
    folder.mkdir()
    session = [
        code if kind == "python" else f"typed({code!r})\n" for kind, code in blocks("docs/tutorial.md")
    ]
    (folder / "session.py").write_text(SESSION + "".join(session))
    shown = typed("python session.py", folder, activated=clone / ".venv" / "bin")
    assert all(f"$ {code}" in shown for kind, code in blocks("docs/tutorial.md") if kind == "console")
    assert (folder / "report-g2" / "index.html").is_file() and (folder / "exported" / "average.h5").is_file()
    assert re.search(r"C\(1\) = -?\d\.\d\de-\d\d \+- \d\.\de-\d\d", shown)
    assert "conf.0400" in shown and f"report: {folder}/report-g2/index.html" in shown
