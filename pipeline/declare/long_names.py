"""Long names of the arrays that a stage returns: the texts under the fields of its result."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import Any

ERROR = "_error"


@cache
def long_names(result: type[Any]) -> dict[str, str]:
    """Long name of each field of a NamedTuple: the text below it, or its name in words."""
    texts = {name: _words(name) for name in getattr(result, "_fields", ())}
    try:
        (definition,) = ast.parse(dedent(inspect.getsource(result))).body
    except (OSError, TypeError, SyntaxError, ValueError):  # of a class that was typed in
        return texts
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    for field, below in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            texts[field.target.id] = " ".join(str(below.value.value).split())
    return texts


def _words(name: str) -> str:
    """`error of correlator` for `correlator_error`."""
    if name.endswith(ERROR):
        return f"error of {_words(name.removesuffix(ERROR))}"
    return name.replace("_", " ")
