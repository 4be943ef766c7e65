"""Declaration of a stage: a typed function, the dimensions it is mapped over, and the arrays it returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pipeline.coordinates import At, Chunks, Coordinate, sorted_unique
from pipeline.errors import UserError, suggestion

Function = TypeVar("Function", bound=Callable[..., Any])


class Dims(tuple[str, ...]):
    """Names of the dimensions of an output array: `Annotated[np.ndarray, Dims("noise", "time")]`.

    A large array may say how it is cut in the store, `Dims("time", "site", pieces={"time": 1})`: at most so
    many entries along these dimensions in a piece that is read alone. Stages get it as an array on disk
    (`StoredArray`) and read slices of it.
    """

    pieces: dict[str, int]

    def __new__(cls, *names: str, pieces: Mapping[str, int] | None = None) -> Dims:
        made = super().__new__(cls, names)
        made.pieces = dict(pieces or {})
        return made

    def __eq__(self, other: object) -> bool:
        """`Annotated` keeps one of equal annotations for all: pieces must tell them apart."""
        return tuple.__eq__(self, other) is True and self.pieces == getattr(other, "pieces", {})

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


@dataclass(frozen=True)
class Resources:
    """What one task of a stage needs: `device=1` is one GPU on a CUDA cluster and one worker elsewhere."""

    device: int = 0


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
    result: Any
    reduces: bool
    optional: bool
    variadic: bool


@dataclass(frozen=True)
class Parameter:
    """One keyword-only argument of a stage."""

    name: str
    type: Any
    default: Any

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True)
class Stage:
    """A declared stage. The function stays an ordinary function; this travels beside it."""

    function: Callable[..., Any]
    version: str
    over: tuple[str, ...]
    resources: Resources
    chunk_in_key: bool
    unkeyed: tuple[str, ...]
    transient: bool
    resident: bool
    backend_in_key: bool
    inputs: tuple[Input, ...]
    parameters: tuple[Parameter, ...]
    takes_at: bool
    result: Any
    outputs: tuple[Output, ...]
    labels: dict[str, tuple[Coordinate, ...]]

    @property
    def name(self) -> str:
        return self.function.__name__

    def backend(self, cluster: str) -> str:
        """Backend of its tasks on a cluster of that backend: what asks for no device stays on the CPU.

        A transient stage that asks for none has no task, and runs where its consumer runs."""
        return cluster if self.resources.device else "cpu"

    def lone_dims(self) -> tuple[str, ...]:
        """Dimensions that some output does not name: one coordinate per chunk there."""
        named = [set(output.dims) for output in self.outputs]
        return tuple(dim for dim in self.over if any(dim not in dims for dims in named))


def stage(
    *,
    version: str,
    over: tuple[str, ...] = (),
    resources: Resources = Resources(),
    chunk_in_key: bool = False,
    unkeyed: tuple[str, ...] = (),
    transient: bool = False,
    resident: bool = False,
    backend_in_key: bool = False,
    labels: Mapping[str, Sequence[Coordinate]] | None = None,
) -> Callable[[Function], Function]:
    """Declare a function as a stage.

    Args:
        version: raise it when the code changes in a way that alters results.
        over: dimensions that the stage is mapped over.
        resources: what one task needs.
        chunk_in_key: the number of coordinates per chunk can alter a result (block solvers).
        unkeyed: parameters that decide whether there is a result, but not which (limits of iterations).
        transient: no task and no store entry of its own, computed inside its consumers' tasks, on their
            backend. Such a stage may return any object.
        resident: workers keep its results in a cache bounded in bytes and keyed by content.
        backend_in_key: results are not reproducible across backends.
        labels: names along dimensions of the outputs that the stage is not mapped over, such as
            `{"parity": ("even", "odd")}`: the coordinates of whoever reads a result. They enter no key.

    Raises:
        UserError: at import, when the signature does not fit the declaration.
    """

    def declare(function: Function) -> Function:
        inputs, parameters, takes_at = _arguments(function)
        result = _hints(function).get("return", Any)
        declared = Stage(
            function=function,
            version=version,
            over=tuple(over),
            resources=resources,
            chunk_in_key=chunk_in_key,
            unkeyed=tuple(unkeyed),
            transient=transient,
            resident=resident,
            backend_in_key=backend_in_key,
            inputs=inputs,
            parameters=parameters,
            takes_at=takes_at,
            result=result,
            outputs=_outputs(function.__name__, result, optional=transient),
            labels={dim: tuple(names) for dim, names in (labels or {}).items()},
        )
        _check(declared)
        function.stage = declared  # type: ignore[attr-defined]
        return function

    return declare


def stage_of(function: Callable[..., Any]) -> Stage:
    """The declaration of a stage function; refuses anything else."""
    declared = getattr(function, "stage", None)
    if not isinstance(declared, Stage):
        raise UserError(
            f"{getattr(function, '__name__', function)!r} is not a stage: declare it with @stage(...)"
        )
    return declared


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        name = getattr(function, "__name__", "?")
        raise UserError(f"stage {name}: {error}; import what its annotations name at run time") from error


def _arguments(function: Callable[..., Any]) -> tuple[tuple[Input, ...], tuple[Parameter, ...], bool]:
    """Positional arguments are inputs, keyword-only ones are parameters, `at` is the run's."""
    hints, name = _hints(function), function.__name__
    inputs: list[Input] = []
    parameters: list[Parameter] = []
    takes_at = False
    for argument in inspect.signature(function).parameters.values():
        if argument.kind is argument.VAR_KEYWORD:
            raise UserError(f"stage {name}: **{argument.name} is not allowed, name every parameter")
        if argument.kind is not argument.KEYWORD_ONLY:
            inputs.append(_input(name, argument, hints))
        elif argument.name == "at":
            takes_at = True
        else:
            parameters.append(Parameter(argument.name, hints.get(argument.name, Any), argument.default))
    return tuple(inputs), tuple(parameters), takes_at


def _input(stage_name: str, argument: inspect.Parameter, hints: dict[str, Any]) -> Input:
    if argument.name == "at":
        raise UserError(
            f"stage {stage_name}: 'at' must be keyword-only, write '*, at: At' before the parameters"
        )
    if argument.name not in hints:
        raise UserError(
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


def _without_none(hint: Any) -> Any:
    """`X` of `X | None`."""
    if get_origin(hint) in (Union, UnionType):
        rest = tuple(option for option in get_args(hint) if option is not type(None))
        return rest[0] if len(rest) == 1 else Union[rest]  # noqa: UP007 (built at run time)
    return hint


def _outputs(stage_name: str, result: Any, *, optional: bool) -> tuple[Output, ...]:
    """The arrays of a NamedTuple whose fields are `Annotated[np.ndarray, Dims(...)]`."""
    if not (isinstance(result, type) and issubclass(result, tuple) and hasattr(result, "_fields")):
        if optional:
            return ()
        raise UserError(
            f"stage {stage_name}: the return type must be a NamedTuple of Annotated[np.ndarray, Dims(...)], "
            f"got {getattr(result, '__name__', result)!r}"
        )
    dims = {name: _dims(hint) for name, hint in get_type_hints(result, include_extras=True).items()}
    missing = [name for name, names in dims.items() if names is None]
    if missing and optional:
        return ()
    if missing:
        raise UserError(
            f"stage {stage_name}: output {missing[0]!r} of {result.__name__} has no dimension names, "
            "annotate it as Annotated[np.ndarray, Dims(...)]"
        )
    return tuple(
        Output(name, tuple(names), names.pieces) for name, names in dims.items() if names is not None
    )


def _dims(hint: Any) -> Dims | None:
    if get_origin(hint) is not Annotated:
        return None
    return next((extra for extra in get_args(hint)[1:] if isinstance(extra, Dims)), None)


def _check(declared: Stage) -> None:
    name = declared.name
    dims = [("over", declared.over), *((f"output {o.name!r}", o.dims) for o in declared.outputs)]
    if not isinstance(declared.version, str) or not declared.version:
        raise UserError(f"stage {name}: version must be a non-empty string, got {declared.version!r}")
    for label, names in dims:
        if len(set(names)) != len(names):
            raise UserError(f"stage {name}: {label} names a dimension twice: {names!r}")
    if declared.over and not declared.takes_at and not declared.inputs:
        raise UserError(f"stage {name}: mapped over {declared.over} but takes neither inputs nor 'at: At'")
    for output in declared.outputs:
        _check_pieces(name, output)
    _check_labels(declared)
    known = [parameter.name for parameter in declared.parameters]
    for parameter in declared.unkeyed:
        if parameter not in known:
            raise UserError(
                f"stage {name}: unkeyed {parameter!r} is no parameter{suggestion(parameter, known)}"
            )
    if declared.resources.device < 0:
        raise UserError(f"stage {name}: Resources(device={declared.resources.device}) must not be negative")


def _check_pieces(name: str, output: Output) -> None:
    for dim, length in output.pieces.items():
        if dim not in output.dims:
            raise UserError(
                f"stage {name}: pieces of output {output.name!r} along {dim!r}, which it does not name"
                f"{suggestion(dim, output.dims)}"
            )
        if not isinstance(length, int) or length < 1:
            raise UserError(
                f"stage {name}: a piece of output {output.name!r} must have at least 1 entry along {dim!r}, "
                f"got {length!r}"
            )


def _check_labels(declared: Stage) -> None:
    free = {dim for output in declared.outputs for dim in output.dims if dim not in declared.over}
    for dim, names in declared.labels.items():
        if dim not in free:
            raise UserError(
                f"stage {declared.name}: labels along {dim!r}, which is no dimension of its outputs alone"
                f"{suggestion(dim, free)}"
            )
        sorted_unique(dim, names)


__all__ = ["At", "Chunks", "Dims", "Resources", "Stage", "stage", "stage_of"]
