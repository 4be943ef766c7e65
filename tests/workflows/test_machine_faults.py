"""Odd surroundings: full disks, folders that are gone or closed, little memory, names that are no text."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, EIO, EMFILE, ENAMETOOLONG, ENOENT, ENOSPC, EROFS
from pathlib import Path

import numpy as np
import pytest
from tiny_project import TINY

from pipeline import Store
from pipeline.planning import manifest, manifest_files
from quarkline import main
from stages.base.errors import InputError
from stages.base.gpus import imported_cupy
from workflows.commands import plan
from workflows.exports import library
from workflows.machine_faults import machine_fault
from workflows.publishing import writing_into
from workflows.terminal import say, tell

ROOT = Path(__file__).parents[2]
FULL = (
    "error: standard output cannot be written (No space left on device): send it elsewhere, or make room "
    "there\n"
)


@contextmanager
def full_output() -> Iterator[None]:
    """Standard output is a device without room."""
    device = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", device)
        yield
    with suppress(OSError):
        device.close()


@pytest.mark.parametrize(
    "line",
    [
        "--version",
        "--help",
        "run --help",
        "schema mesons",
        "schema mesons --json",
        "init mesons m.yaml",
        "plan g2.yaml",
        "plan g2.yaml --json",
        "status store",
        "status store --json",
        "status store --handover page.html",
        "verify store",
        "gc g2.yaml",
        "report g2.yaml",
        "export g2.yaml --to csv --result average",
    ],
)
def test_output_that_cannot_be_written(line, project, monkeypatch, capsys):
    monkeypatch.chdir(project.parent)
    with full_output():
        assert main(line.split()) == 1
    assert capsys.readouterr().err.endswith(FULL)


def test_no_run_ends_by_what_it_says(tmp_path: Path) -> None:
    with full_output():
        tell("a line")
    with (
        full_output(),
        pytest.raises(InputError, match="standard output cannot be written"),
        writing_into(tmp_path),
    ):
        say("a line")


UNIT = (
    b"BEGIN_HEADER\nDATATYPE = 4D_SU3_GAUGE\nDIMENSION_1 = 2\nDIMENSION_2 = 2\nDIMENSION_3 = 2\n"
    b"DIMENSION_4 = 2\nCHECKSUM = 0\nLINK_TRACE = 1.0\nPLAQUETTE = 1.0\nFLOATING_POINT = IEEE32LITTLE\n"
    b"END_HEADER\n"
) + np.tile(np.eye(2, 6, dtype="<f4")[:, [0, 2, 1, 3, 4, 5]], (64, 1)).tobytes()
"""A file of unit links, but for its checksum."""

SHELL = {
    "mkdir gone; cd gone; rmdir ../gone; $QUARKLINE plan ../g2.yaml": (
        2,
        "error: the working folder is gone or cannot be read (No such file or directory): change to another "
        "one (cd)\n",
    ),
    "$QUARKLINE --version >&-": (0, ""),
    "NUMBA_DISABLE_JIT=1 $QUARKLINE check c.nersc": (
        2,
        "error: kernels must be compiled, but NUMBA_DISABLE_JIT=1 forbids it: unset this variable\n",
    ),
    "NUMBA_NUM_THREADS=0 $QUARKLINE check c.nersc": (
        1,
        "error: NUMBA_NUM_THREADS=0 leaves no thread: set it to 1 or more, or unset it\n",
    ),
    "NUMBA_NUM_THREADS=two $QUARKLINE check c.nersc": (
        1,
        "error: Environment variable 'NUMBA_NUM_THREADS' is defined but its associated value 'two' could not "
        "be parsed. Set it to a number, or unset it\n",
    ),
    "$QUARKLINE init mesons $(printf 'y\\377.yaml')": (
        1,
        "error: a name is no UTF-8, near ' masses -> report.\\n#\\n#   quarkline run y\\udcff.yaml       "
        "run it; ': rename the file or folder\n",
    ),
}


@pytest.mark.parametrize("line", SHELL)
def test_shells(line: str, tmp_path: Path) -> None:
    code, told = SHELL[line]
    (tmp_path / "c.nersc").write_bytes(UNIT)
    environment = {**os.environ, "QUARKLINE": f"{sys.executable} {ROOT / 'quarkline.py'}"}
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, told)


def of_system(number: int, path: object = None) -> OSError:
    return OSError(number, os.strerror(number), path)


def raised_by(module: str, error: Exception) -> Exception:
    """An error that went through a module of that name."""
    try:
        exec("def fail(error):\n    raise error", scope := {"__name__": module})
        scope["fail"](error)
    except Exception as passed:
        return passed
    raise AssertionError


def unencodable(text: str, encoding: str) -> Exception:
    with pytest.raises(UnicodeEncodeError) as caught:
        text.encode(encoding)
    return caught.value


def too_much() -> Exception:
    with pytest.raises(MemoryError) as caught:
        np.empty(1 << 55)
    return caught.value


def caused(text: str, cause: Exception) -> Exception:
    error = OSError(text)
    error.__cause__ = cause
    return error


SENTENCES = [
    (of_system(EACCES, "a/b"), "a/b: Permission denied; ask its owner for permission"),
    (of_system(EROFS, Path("a/b")), "a/b: Read-only file system; the file system is read-only: choose"),
    (of_system(ENOSPC, b"a/b"), "a/b: No space left on device; make room there, or choose another place"),
    (of_system(ENAMETOOLONG, "aaa"), "aaa: File name too long; a name has 255 bytes at most, a path 4095"),
    (of_system(EIO), "Input/output error; the disk or file system fails"),
    (of_system(EMFILE, "a"), "a: Too many open files; raise the limit of open files (ulimit -n 4096)"),
    (MemoryError(), "there is too little memory: free some, or raise the limit (ulimit -v"),
    (too_much(), "there is too little memory (Unable to allocate 256. PiB for an array with shape"),
    (ImportError("libblas.so: failed to map segment from shared object"), "there is too little memory (libb"),
    (
        ImportError("\n\nIMPORTANT: READ THIS\n\nOriginal error was: libblas.so: failed to map segment\n"),
        "there is too little memory (Original error was: libblas.so: failed to map segment): free some",
    ),
    (
        caused("llvmlite.so could not be found", OSError("llvmlite.so: failed to map segment")),
        "there is too little memory (llvmlite.so: failed to map segment): free some",
    ),
    (RuntimeError("can't start new thread"), "no thread can be started: raise the limit of processes"),
    (
        RuntimeError("cannot cache function 'f': no locator available for file 'x.py'"),
        "Numba has no folder for compiled kernels: set NUMBA_CACHE_DIR to one that can be written",
    ),
    (unencodable("store b\udcffd", "utf-8"), "a name is no UTF-8, near 'store b\\udcffd': rename"),
    (unencodable("\u2026", "ascii"), "the terminal's encoding ascii lacks '\\u2026': set PYTHONUTF8=1"),
    (
        raised_by("cupy.cuda.compiler", of_system(ENOENT, "/proc/.cupy")),
        "/proc/.cupy: No such file or directory; CuPy keeps compiled kernels there: set CUPY_CACHE_DIR",
    ),
]


@pytest.mark.parametrize(("error", "told"), SENTENCES)
def test_sentences(error: Exception, told: str) -> None:
    assert machine_fault(error).startswith(told)


@pytest.mark.parametrize("error", [of_system(ENOENT, "a"), KeyError("a"), RuntimeError("a"), TypeError("a")])
def test_errors_in_quarkline_show_their_traceback(error, quarkline, monkeypatch):
    def fail(_: object) -> None:
        raise error

    Path("g2.yaml").write_text(TINY)
    monkeypatch.setattr(plan, "Rounds", lambda *_: fail(None))
    with pytest.raises(type(error)):
        main(["plan", "g2.yaml"])
    assert machine_fault(error) == ""


def test_a_fault_of_the_machine_is_a_document(quarkline, monkeypatch):
    def fail(*_: object) -> None:
        raise of_system(EACCES, "a/b")

    Path("g2.yaml").write_text(TINY)
    monkeypatch.setattr(plan, "Rounds", fail)
    answer = quarkline("plan", "g2.yaml", "--json")
    assert answer.code == 1 and '"kind": "failed"' in answer.out and "a/b: Permission denied" in answer.out
    assert answer.err.startswith("error: a/b: Permission denied; ask its owner")


@pytest.mark.parametrize("line", ["status", "verify", "dashboard"])
@pytest.mark.parametrize("name", ["a" * 300, "abcdefghi/" * 450], ids=["a long name", "a long path"])
def test_long_names(line: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([line, str(tmp_path / name)]) in (1, 2)
    assert "File name too long" in capsys.readouterr().err


@pytest.mark.parametrize("folder", [".workflows", ".runs", ".campaigns"])
def test_folders_of_a_store_that_may_not_be_read(folder, tmp_path, monkeypatch):
    Store(tmp_path / "store").create()
    (tmp_path / "store" / folder).mkdir(exist_ok=True)
    monkeypatch.setattr(os, "access", lambda path, _: not str(path).endswith(folder))
    with pytest.raises(InputError, match=rf"store/\{folder} cannot be read: Permission denied; a store"):
        Store(tmp_path / "store")


def test_a_manifest_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its chunks would look as if nobody had run for them."""
    (store := Store(tmp_path / "store")).create()
    (store.path / ".workflows" / "g2.json").write_text("{}")
    monkeypatch.setattr(manifest, "content_of", lambda path: (_ for _ in ()).throw(of_system(EACCES, path)))
    with pytest.raises(InputError, match=r"g2\.json cannot be read: Permission denied"):
        manifest_files.manifests(store)


PACKAGES = {
    "raise ImportError('libcudart.so.13: cannot open')": "GPUs need CuPy (libcudart.so.13: cannot open): pip",
    "raise ModuleNotFoundError('no cupy_backends')": "GPUs need CuPy (no cupy_backends): pip install",
    "raise PermissionError(13, 'Permission denied', '/h/.cupy')": "CuPy keeps compiled kernels, and cannot "
    "([Errno 13] Permission denied: '/h/.cupy'): set CUPY_CACHE_DIR to a folder that can be written",
}


@pytest.mark.parametrize("text", PACKAGES)
def test_cupy_that_cannot_be_imported(text, quarkline, monkeypatch):
    Path("cupy.py").write_text(text)
    monkeypatch.syspath_prepend(".")
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    with pytest.raises(InputError) as caught:
        imported_cupy()
    assert str(caught.value).startswith(PACKAGES[text])
    answer = quarkline("certify", "--backend", "cuda")
    assert answer.code == 2 and answer.err.startswith(f"error: {PACKAGES[text]}"), answer.err


def test_gvar_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gvar.py").write_text("import numpy; numpy.no_such_name")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gvar", raising=False)
    with pytest.raises(InputError, match="gvar is installed, but cannot be imported") as caught:
        library("gvar")
    assert "(AttributeError: module 'numpy' has no attribute 'no_such_name'): pip" in str(caught.value)
