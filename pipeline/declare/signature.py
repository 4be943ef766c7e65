"""The signature of a stage function: its inputs, its parameters, and the arrays that it returns."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from textwrap import dedent
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pipeline.declare.coordinates import Chunks
from pipeline.declare.parameter import Parameter
from stages.base.errors import InputError


class Dims(tuple[str, ...]):
    """Names of the dimensions of an output array: `Annotated[np.ndarray, Dims("noise", "time")]`.

    A large array may say how it is cut in the store, `Dims("time", "site", pieces={"time": 1})`: at most so
    many entries along these dimensions in a piece that is read alone. Stages get it as an array on disk
    (`StoredArray`) and read slices of it.
    """

    pieces: dict[str, int]

    def __new__(cls, *names: str, pieces: Mapping[str, int] | None = None) -> Dims:
        dims = super().__new__(cls, names)
        dims.pieces = dict(pieces or {})
        return dims

    def __eq__(self, other: object) -> bool:
        """`Annotated` keeps one of equal annotations for all: pieces must tell them apart."""
        return tuple.__eq__(self, other) is True and self.pieces == getattr(other, "pieces", {})

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


@dataclass(frozen=True)
class Output:
    """One array of a stage's result."""

    name: str
    dims: tuple[str, ...]
    pieces: dict[str, int] = field(default_factory=dict)
    """Entries along some dimensions that lie in one piece of the stored array."""


@dataclass(frozen=True)
class Input:
    """One positional argument of a stage: the result of an upstream node, or an iterator over its chunks."""

    name: str
    result: object
    reduces: bool
    optional: bool
    variadic: bool


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function, resolved. Raises InputError for names that are not imported."""
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        name = getattr(function, "__name__", "?")
        raise InputError(f"stage {name}: {error}; import what its annotations name at run time") from error


def arguments_of(function: Callable[..., Any]) -> tuple[tuple[Input, ...], tuple[Parameter, ...], bool]:
    """Inputs (positional), parameters (keyword-only) and whether there is an `at` among these."""
    hints, name = hints_of(function), function.__name__
    inputs: list[Input] = []
    parameters: list[Parameter] = []
    takes_at = False
    for argument in inspect.signature(function).parameters.values():
        if argument.kind is argument.VAR_KEYWORD:
            raise InputError(f"stage {name}: **{argument.name} is not allowed, name every parameter")
        if argument.kind is not argument.KEYWORD_ONLY:
            inputs.append(_input(name, argument, hints))
        elif argument.name == "at":
            takes_at = True
        else:
            parameters.append(Parameter(argument.name, hints.get(argument.name, Any), argument.default))
    return tuple(inputs), tuple(parameters), takes_at


def _input(stage_name: str, argument: inspect.Parameter, hints: Mapping[str, object]) -> Input:
    if argument.name == "at":
        raise InputError(
            f"stage {stage_name}: 'at' must be keyword-only, write '*, at: At' before the parameters"
        )
    if argument.name not in hints:
        raise InputError(
            f"stage {stage_name}: input {argument.name!r} needs a type, its upstream stage's result"
        )
    hint = _without_none(hints[argument.name])
    reduces = get_origin(hint) is Chunks
    return Input(
        name=argument.name,
        result=get_args(hint)[0] if reduces else hint,
        reduces=reduces,
        optional=argument.default is not argument.empty,
        variadic=argument.kind is argument.VAR_POSITIONAL,
    )


def _without_none(hint: object) -> object:
    """`X` of `X | None`."""
    if get_origin(hint) in (Union, UnionType):
        others = tuple(option for option in get_args(hint) if option is not type(None))
        return others[0] if len(others) == 1 else Union[others]  # noqa: UP007 (built at run time)
    return hint


def outputs_of(stage_name: str, result: object, *, optional: bool) -> tuple[Output, ...]:
    """The arrays of a NamedTuple whose fields are `Annotated[np.ndarray, Dims(...)]`."""
    if not (isinstance(result, type) and issubclass(result, tuple) and hasattr(result, "_fields")):
        if optional:
            return ()
        raise InputError(
            f"stage {stage_name}: the return type must be a NamedTuple of Annotated[np.ndarray, Dims(...)], "
            f"got {getattr(result, '__name__', result)!r}"
        )
    dims = {name: _dims(hint) for name, hint in get_type_hints(result, include_extras=True).items()}
    missing = [name for name, names in dims.items() if names is None]
    if missing and optional:
        return ()
    if missing:
        raise InputError(
            f"stage {stage_name}: output {missing[0]!r} of {result.__name__} has no dimension names, "
            "annotate it as Annotated[np.ndarray, Dims(...)]"
        )
    return tuple(
        Output(name, tuple(names), names.pieces) for name, names in dims.items() if names is not None
    )


def _dims(hint: object) -> Dims | None:
    if get_origin(hint) is not Annotated:
        return None
    return next((extra for extra in get_args(hint)[1:] if isinstance(extra, Dims)), None)


@cache
def long_names(result: type) -> dict[str, str]:
    """Long name of each field of a NamedTuple: the text below it, or its name in words."""
    texts = {name: _words(name) for name in getattr(result, "_fields", ())}
    try:
        (definition,) = ast.parse(dedent(inspect.getsource(result))).body
    except (OSError, TypeError, SyntaxError, ValueError):  # of a class that was typed in
        return texts
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    for entry, below in pairwise(body):
        if (
            isinstance(entry, ast.AnnAssign)
            and isinstance(entry.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            texts[entry.target.id] = " ".join(str(below.value.value).split())
    return texts


def _words(name: str) -> str:
    """`error of correlator` for `correlator_error`."""
    if name.endswith("_error"):
        return f"error of {_words(name.removesuffix('_error'))}"
    return name.replace("_", " ")


def brief(result: Any) -> str:
    """`GaugeLinks(links=complex128 [4, 2, 128, 3, 3], extents=int64 [4])` of a NamedTuple of arrays."""
    fields = (f"{name}={_brief(getattr(result, name))}" for name in result._fields)
    return f"{type(result).__name__}({', '.join(fields)})"


def _brief(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return repr(value) if shape is None else f"{value.dtype} {list(shape)}"
