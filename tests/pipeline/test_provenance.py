"""The commit that a record names: of this package's own checkout, or none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.store.provenance import code, code_text, commit_of

FILE = Path("pipeline", "store", "provenance.py")

Git = Callable[..., str]


@pytest.fixture
def git() -> Git:
    def run(folder: Path, *words: str) -> str:
        who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
        done = subprocess.run(
            ["git", "-C", str(folder), *who, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    return run


@pytest.fixture
def checkout(tmp_path: Path, git: Git) -> Path:
    """A repository with the package at its top."""
    root = with_package(tmp_path.resolve() / "checkout")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    return root


def with_package(root: Path) -> Path:
    (root / FILE).parent.mkdir(parents=True)
    (root / FILE).write_text("# of the package\n")
    return root


def head(git: Git, root: Path) -> str:
    return git(root, "rev-parse", "--short", "HEAD")


def test_this_checkout_names_its_commit() -> None:
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        pytest.skip("the tests do not stand in a checkout")
    described = subprocess.run(
        ["git", "-C", str(root), "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    assert code()["commit"].removesuffix("-dirty") == described.stdout.strip().removesuffix("-dirty") != ""


def test_a_checkout_an_edited_one_and_a_worktree(checkout: Path, git: Git, tmp_path: Path) -> None:
    assert commit_of(checkout / FILE) == head(git, checkout)
    tree = tmp_path.resolve() / "tree"
    git(checkout, "worktree", "add", "-q", str(tree))
    (tree / "second.py").write_text("")
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "second")
    assert (tree / ".git").is_file()
    assert commit_of(tree / FILE) == head(git, tree) != head(git, checkout)
    (tree / FILE).write_text("# edited\n")
    assert commit_of(tree / FILE) == f"{head(git, tree)}-dirty"


def test_somebody_elses_repository_lends_no_commit(checkout, git, monkeypatch):
    """Installed below a project, unpacked beside its files, or named by git's own variables."""
    installed = with_package(checkout / ".venv" / "lib" / "site-packages")
    git(checkout, "add", "-f", ".")
    git(checkout, "commit", "-q", "-m", "a package tracked below the top")
    assert commit_of(installed / FILE) == ""
    foreign = checkout.parent / "foreign"
    foreign.mkdir()
    (foreign / "paper.tex").write_text("")
    git(foreign, "init", "-q")
    git(foreign, "add", ".")
    git(foreign, "commit", "-q", "-m", "theirs")
    assert commit_of(with_package(foreign / "quarkline") / FILE) == ""
    assert commit_of(with_package(foreign) / FILE) == ""
    alone = with_package(checkout.parent / "alone")
    monkeypatch.setenv("GIT_DIR", str(foreign / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(alone))
    assert commit_of(alone / FILE) == ""
    assert commit_of(checkout / FILE)


def test_a_record_without_a_commit_names_its_sources() -> None:
    digest = "a4a71c16" + 56 * "0"
    assert code_text({"quarkline": "1.2", "commit": "", "sources": digest}) == "1.2 (sources a4a71c16)"
    assert code_text({"quarkline": "1.2", "commit": "abc", "sources": digest}) == "1.2 (abc)"
    assert code_text({"quarkline": "1.2", "commit": ""}) == "1.2"
    assert code_text({}) == "?"


def test_git_only_reads_and_without_it_there_is_no_commit(checkout, git, monkeypatch):
    """A process that is killed meanwhile leaves no lock in the checkout; no hook of it is run."""
    index, ran = checkout / ".git" / "index", checkout / "ran"
    git(checkout, "config", "core.fsmonitor", f"touch {ran}; false")
    os.utime(checkout / FILE, (1, 1))  # git would write down that the file is what it was
    before = index.read_bytes(), index.stat().st_mtime_ns
    assert commit_of(checkout / FILE) == head(git, checkout)
    assert (index.read_bytes(), index.stat().st_mtime_ns) == before and not ran.exists()

    monkeypatch.setenv("PATH", str(checkout))
    assert commit_of(checkout / FILE) == ""
