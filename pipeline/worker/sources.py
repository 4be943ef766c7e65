"""The source code that computes, as a digest: a worker whose code is not its driver's computes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SUFFIXES = {".py", ".cu", ".cuh"}

ENGINE = __name__.partition(".")[0]


@dataclass(frozen=True)
class Sources:
    """Top-level packages and modules of a run's stages and of the engine; digest: of their sources."""

    names: tuple[str, ...]
    digest: str


def sources_of(functions: Iterable[Callable[..., Any]]) -> Sources:
    """Sources of the packages that these functions stand in, as this process found them at first."""
    names = tuple(sorted({ENGINE, *(function.__module__.partition(".")[0] for function in functions)}))
    return Sources(names, digest_of(names))


@cache
def digest_of(names: tuple[str, ...]) -> str:
    """SHA-256 over names and contents of all source files of packages and modules.

    Computed once in a process, before or while the code is loaded: what is edited later is not what runs.
    """
    summed = sha256()
    for name in names:
        for relative, path in sorted(_files(name)):
            content = path.read_bytes()
            summed.update(f"{name}/{relative} {len(content)}\n".encode() + content)
    return summed.hexdigest()


def _files(name: str) -> Iterator[tuple[str, Path]]:
    """Source files of a package or module, with their names relative to it."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None) or (find_spec(name) if name != "__main__" else None)
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    for folder in folders:
        for path in folder.rglob("*"):
            if path.suffix in SUFFIXES:
                yield path.relative_to(folder).as_posix(), path
    file = (spec.origin if spec else None) or getattr(module, "__file__", None)
    if not folders and file and Path(file).is_file():
        yield Path(file).name, Path(file)
