"""A package's front door: the names that it offers to others, each loaded when it is first asked for."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def front_door(package: str, file: str) -> tuple[list[str], Callable[[str], Any]]:
    """`__all__` and `__getattr__` of a package, from the imports under `if TYPE_CHECKING:` in its file.

    That block is the one list of names: type checkers read it, and nothing of it is imported before a name is
    asked for.
    """
    modules = {
        alias.name: statement.module
        for block in ast.parse(Path(file).read_text(encoding="utf-8")).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for alias in statement.names
    }

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(modules[name])
        value = getattr(module, name, None) or import_module(f"{modules[name]}.{name}")
        setattr(import_module(package), name, value)
        return value

    return sorted(modules), load
