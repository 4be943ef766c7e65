"""The source code that computes, as a digest: a worker whose code is not its driver's computes nothing.

Of the engine that is its worker and all that stands below it: what a chunk is, its key, its file, and how it
is evaluated. Drivers, clusters, pages, transfer and commands are outside: no worker imports them (the layers
of the packages forbid it), they choose when and where a chunk is computed and never what, and they may be
edited while a run is on. Certificates are of the same digest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from pipeline.store.provenance import host
from stages.base.errors import InputError

SUFFIXES = {".py", ".cu", ".cuh"}

ENGINE = __name__.partition(".")[0]

LAYERS = {ENGINE: ("worker", "planning", "store", "declare")}
"""By package, the folders that compute; of other packages all of them."""

QUARKLINE = (ENGINE, "stages")
"""Packages of quarkline that compute."""


REMEDY = "start driver and workers again, from one installation, and do not edit it during a run"


class OtherCodeError(InputError):
    """Error of a worker whose code is not the driver's."""


def refusal(difference: str) -> OtherCodeError:
    """The error of a worker on this machine; difference: between its code and the driver's."""
    return OtherCodeError(
        f"a worker on {host()} has other code than the driver ({difference}): nothing was computed there; "
        f"{REMEDY}"
    )


@dataclass(frozen=True)
class Sources:
    """Top-level packages and modules of a run's stages and of the engine; digest: of their sources."""

    names: tuple[str, ...]
    digest: str

    def check(self) -> None:
        """Raise OtherCodeError unless this process has them."""
        names = self.names
        if absent := [name for name in names if name not in sys.modules and find_spec(name) is None]:
            text = "cannot be imported there: install it, or name its folder in PYTHONPATH"
            raise refusal(f"{', '.join(absent)} {text}")
        if (found := digest_of(names)) != self.digest:
            digests = f"{found[:12]} there, {self.digest[:12]} in the driver"
            raise refusal(f"sources of {', '.join(names)}: {digests}")

    def edit(self) -> str:
        """The error of a driver whose sources were edited since it began; empty if they were not."""
        if _joined(self.names, _read) == self.digest:
            return ""
        which = ", ".join(self.names)
        return f"sources of {which} were edited during the run: no worker can be replaced; {REMEDY}"


def sources_of(functions: Iterable[Callable[..., Any]]) -> Sources:
    """Sources of the packages that these functions stand in, as this process runs them."""
    names = tuple(sorted({ENGINE, *(function.__module__.partition(".")[0] for function in functions)}))
    return Sources(names, digest_of(names))


def code_of(functions: Iterable[Callable[..., Any]]) -> dict[str, str]:
    """Digest of each package or module that these functions and the engine stand in, by its name."""
    return {name: digest_of([name]) for name in sources_of(functions).names}


def digest_of(names: Iterable[str]) -> str:
    """SHA-256 over names and contents of all source files of packages and modules, as this process runs them.

    A package is read when it is first asked for, and again, in case it was edited meanwhile, whenever more of
    its modules were loaded: code of two states has a digest that no other process has.
    """
    return _joined(names, _digest)


def _joined(names: Iterable[str], digest: Callable[[str], str]) -> str:
    return sha256("\n".join(f"{name} {digest(name)}" for name in names).encode()).hexdigest()


_Loaded = tuple[int, int]


_digests: dict[str, tuple[str, frozenset[str], _Loaded | None]] = {}
"""A package's digest, its modules that were loaded when it was read, and what was loaded in all."""


def _digest(name: str) -> str:
    digest, known, before = _digests.get(name, ("", frozenset[str](), None))
    if before == (loaded := _loaded()):
        return digest
    modules = frozenset(each for each in list(sys.modules) if each == name or each.startswith(f"{name}."))
    if not digest or not modules <= known:
        on_disk = _read(name)
        digest = on_disk if digest in ("", on_disk) else f"{digest}, edited: {on_disk}"
    _digests[name] = digest, modules, loaded
    return digest


def _loaded() -> _Loaded:
    """Number of all loaded modules and the last one: as they were, unless modules were loaded or dropped."""
    modules = list(sys.modules.values())
    return len(modules), id(modules[-1])


def _read(name: str) -> str:
    summed = sha256()
    for relative, path in sorted(_files(name)):
        try:
            content = path.read_bytes()
        except OSError as error:  # it is being replaced, or nobody may read it
            content = type(error).__name__.encode()
        summed.update(f"{relative} {len(content)}\n".encode() + content)
    return summed.hexdigest()


def _files(name: str) -> Iterator[tuple[str, Path]]:
    """Source files of a package or module that compute, with their names relative to it."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None) or (find_spec(name) if name != "__main__" else None)
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    for folder in folders:
        for path in chain.from_iterable((folder / layer).rglob("*") for layer in LAYERS.get(name, ("",))):
            if path.suffix in SUFFIXES and path.is_file():  # editors leave links to nowhere
                yield path.relative_to(folder).as_posix(), path
    file = (spec.origin if spec else None) or getattr(module, "__file__", None)
    if not folders and file and Path(file).is_file():
        yield Path(file).name, Path(file)
