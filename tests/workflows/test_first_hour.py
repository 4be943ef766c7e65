"""The first hour of a new user, in a clean clone and a fresh environment: README and tutorial as typed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
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
FILES = """\
from pathlib import Path
from pipeline import At
from stages.ensemble.configuration import heatbath_configuration
from stages.lqcd.lattice.formats import write_ildg

Path("confs").mkdir(exist_ok=True)
for name in ("conf.0100", "conf.0200", "conf.0300"):
    chain = {"extents": (4, 4, 4, 8), "beta": 6.0, "seed": 11, "sweeps": 30, "overrelaxation": 2}
    gauge = heatbath_configuration(at=At(config=name), **chain)
    write_ildg(f"confs/{name}.ildg", gauge.links, gauge.lattice, precision=64)
"""
"""Writes small configurations."""
NUMBERS_OF_THE_PICTURE = "docs/figures/g2_disconnected.txt"

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


def test_the_demo_gives_the_numbers_of_the_picture(clone: Path) -> None:
    """To less than a hundredth of the least error: machines round differently."""
    made, shown = (
        np.loadtxt(path) for path in (clone / "report-g2" / "correlator.txt", ROOT / NUMBERS_OF_THE_PICTURE)
    )
    assert made.shape == shown.shape and abs(made - shown).max() < 1e-4


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(page: str) -> list[tuple[str, str]]:
    """Kind and content of each block of a page."""
    return BLOCK.findall(text_of(page))


def test_your_own_configurations(clone: Path) -> None:
    """README's commands on files, in a fresh shell: here the demo's configurations as files."""
    (block,) = (code for _, code in blocks("README.md") if code.startswith(". .venv/bin/activate"))
    (clone / "files.py").write_text(FILES)
    shown = typed(f".venv/bin/python files.py\n{block}quarkline --help\nquarkline --version\n", clone)
    assert "workflow g2_disconnected" in shown and "to compute" in shown
    assert list(clone.rglob("average.h5")) and list(clone.rglob("average*.csv"))
    assert shown.rstrip().endswith(f"quarkline {version('quarkline')}")


def test_in_python(clone: Path) -> None:
    """Recipes as scripts: one opens the demo's results, one is README's notebook."""
    for page in ("docs/index.md", "README.md"):
        (recipe,) = (code for kind, code in blocks(page) if kind == "python")
        (clone / "recipe.py").write_text(recipe.replace("conf.ildg", "confs/conf.0100.ildg"))
        typed(".venv/bin/python recipe.py", clone)


def test_tutorial(clone: Path) -> None:
    """All blocks in order in an empty folder, commands in shells, Python in one session."""
    folder = clone.parent / "campaign"
    folder.mkdir()
    session = [
        code if kind == "python" else f"typed({code!r})\n"
        for kind, code in blocks("docs/tutorial.md")
        if kind in ("python", "console")
    ]
    (folder / "session.py").write_text(SESSION + "".join(session))
    shown = typed("python session.py", folder, activated=clone / ".venv" / "bin")
    assert all(f"$ {code}" in shown for kind, code in blocks("docs/tutorial.md") if kind == "console")
    assert (folder / "report-g2" / "index.html").is_file() and (folder / "exported" / "average.h5").is_file()
    assert re.search(r"C\(1\) = -?\d\.\d{3} \+- \d\.\d{3}", shown)
    assert "extended" in shown and f"report: {folder}/report-g2/index.html" in shown
