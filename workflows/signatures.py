"""Options and help of a command without the engine that it imports, for help pages, mistakes, completion.

A command's module has ordinary imports, of which those of the engine take seconds. Here such a module is read
once without them: what it would import is a `Blank`, and nothing of that is left behind. Whoever calls the
command imports its module as any other.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

ROOMS = ("pipeline", "stages", "workflows")
READ = ("workflows.commands", "workflows.starters")
"""Modules, and packages of them, whose code is run: options and help are made of what they hold."""


class Blank(ModuleType):
    """A module that was not read: any name can be imported from it, and is blank, too."""

    __path__ = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        return Blank(f"{self.__name__}.{name}")


class _Blanks(MetaPathFinder, Loader):
    """Finds a `Blank` in the place of each module of this distribution that is not to be read."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not _lies_in(fullname, ROOMS) or _lies_in(fullname, READ):
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return Blank(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def signature_module(command: str) -> ModuleType:
    """The module of a command; of the engine it has what others have imported before."""
    name = f"workflows.commands.{command}"
    if name in sys.modules:
        return sys.modules[name]
    with _blanks():
        return import_module(name)


def summary(command: str) -> str:
    """First line of a command's help, out of its module's text."""
    text = (Path(__file__).parent / "commands" / f"{command}.py").read_text(encoding="utf-8")
    found = re.search(rf'^def {command}\(.*?"""(.*?)$', text, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


@contextmanager
def _blanks() -> Iterator[None]:
    """Leave the engine out of what the block imports, and forget that then."""
    before, blanks = set(sys.modules), _Blanks()
    sys.meta_path.insert(0, blanks)
    try:
        yield
    finally:
        sys.meta_path.remove(blanks)
        own = {name: module for name, module in sys.modules.items() if _lies_in(name, ROOMS)}
        for name in own.keys() - before:
            del sys.modules[name]
        for module in own.values():  # of packages that were there before
            for name in [name for name, value in vars(module).items() if isinstance(value, Blank)]:
                delattr(module, name)


def _lies_in(module: str, packages: Sequence[str]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)
