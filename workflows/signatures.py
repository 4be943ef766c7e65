"""Modules of commands without the engine that they import, for help pages.

A command's module has ordinary imports, of which those of the engine take seconds. For `--help` it is read
without them: what it would import is a `Blank`, and nothing of that is left behind.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
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


@contextmanager
def without_engine() -> Iterator[None]:
    """Leave the engine out of what the block imports, and forget that then: it can be shown, not called."""
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
