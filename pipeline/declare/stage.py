"""Declaration of a stage: a typed function, the dimensions it is mapped over, and the arrays it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pipeline.declare.coordinates import Coordinate, sorted_unique
from pipeline.declare.node import Cost, FromParameter, Keyed, Node, Resources, Stage
from pipeline.declare.parameter import check_parameters
from pipeline.declare.signature import Output, arguments_of, brief, hints_of, outputs_of
from stages.base.errors import InputError, suggestion

Function = TypeVar("Function", bound=Callable[..., Any])
PLAINLY = Keyed()
NO_DEVICE = Resources()


def stage(
    *,
    version: str,
    over: tuple[str, ...] = (),
    resources: Resources = NO_DEVICE,
    keyed: Keyed = PLAINLY,
    transient: bool = False,
    resident: bool = False,
    labels: Mapping[str, Sequence[Coordinate] | FromParameter] | None = None,
    cost: Callable[[Node], Cost] | None = None,
) -> Callable[[Function], Function]:
    """Declare a function as a stage.

    Args:
        version: raise it when the code changes in a way that alters results.
        over: dimensions that the stage is mapped over.
        resources: what one task needs.
        keyed: what else enters the keys of its chunks (chunk size, backend), and what does not.
        transient: no task and no store entry of its own, computed inside its consumers' tasks, on their
            backend. Such a stage may return any object.
        resident: workers keep its results in a cache bounded in bytes and keyed by content.
        labels: names along dimensions of the outputs that the stage is not mapped over, such as
            `{"parity": ("even", "odd")}`, or `FromParameter("operators")` where a parameter lists them: the
            coordinates of whoever reads a result. They enter no key.
        cost: bytes that a node of this stage takes, from its parameters, chunk sizes and upstream nodes.

    A parameter that is a frozen dataclass stands in keys and records field by field, each under its own name
    (or that of `field(metadata={"key": ...})`): a stage may gather loose parameters and keep its keys.

    The result's class gets a `repr` that shows types and shapes of arrays instead of their numbers.

    Raises:
        InputError: at import, when the signature does not fit the declaration.
    """

    def declare(function: Function) -> Function:
        inputs, parameters, takes_at = arguments_of(function)
        result = hints_of(function).get("return", Any)
        name = keyed.name or function.__name__
        declared = Stage(
            name=name,
            function=function,
            version=version,
            over=tuple(over),
            resources=resources,
            keyed=keyed,
            transient=transient,
            resident=resident,
            inputs=inputs,
            parameters=parameters,
            takes_at=takes_at,
            result=result,
            outputs=outputs_of(name, result, optional=transient),
            labels={
                dim: names if isinstance(names, FromParameter) else tuple(names)
                for dim, names in (labels or {}).items()
            },
            cost=cost,
        )
        _check(declared)
        if declared.outputs:
            result.__repr__ = brief
        function.stage = declared  # type: ignore[attr-defined]
        return function

    return declare


def stage_of(function: Callable[..., Any]) -> Stage:
    """The declaration of a stage function; refuses anything else."""
    declared = getattr(function, "stage", None)
    if not isinstance(declared, Stage):
        raise InputError(
            f"{getattr(function, '__name__', function)!r} is not a stage: declare it with @stage(...)"
        )
    return declared


def _check(declared: Stage) -> None:
    name = declared.name
    if not isinstance(name, str) or not name.isidentifier():
        raise InputError(f"stage {name!r}: the name in Keyed(name=...) must be a plain word")
    dims = [("over", declared.over), *((f"output {o.name!r}", o.dims) for o in declared.outputs)]
    if not isinstance(declared.version, str) or not declared.version:
        raise InputError(f"stage {name}: version must be a non-empty string, got {declared.version!r}")
    for label, names in dims:
        if len(set(names)) != len(names):
            raise InputError(f"stage {name}: {label} names a dimension twice: {names!r}")
    if declared.over and not declared.takes_at and not declared.inputs:
        raise InputError(f"stage {name}: mapped over {declared.over} but takes neither inputs nor 'at: At'")
    for output in declared.outputs:
        _check_pieces(name, output)
    _check_labels(declared)
    check_parameters(name, declared.parameters, declared.keyed.without, declared.keyed.later)
    if declared.resources.device < 0:
        raise InputError(f"stage {name}: Resources(device={declared.resources.device}) must not be negative")


def _check_pieces(name: str, output: Output) -> None:
    for dim, length in output.pieces.items():
        if dim not in output.dims:
            raise InputError(
                f"stage {name}: pieces of output {output.name!r} along {dim!r}, which it does not name"
                f"{suggestion(dim, output.dims)}"
            )
        if not isinstance(length, int) or length < 1:
            raise InputError(
                f"stage {name}: a piece of output {output.name!r} must have at least 1 entry along {dim!r}, "
                f"got {length!r}"
            )


def _check_labels(declared: Stage) -> None:
    free = {dim for output in declared.outputs for dim in output.dims if dim not in declared.over}
    for dim, names in declared.labels.items():
        if dim not in free:
            raise InputError(
                f"stage {declared.name}: labels along {dim!r}, which is no dimension of its outputs alone"
                f"{suggestion(dim, free)}"
            )
        if isinstance(names, FromParameter):
            known = [parameter.name for parameter in declared.parameters]
            if names.parameter not in known:
                raise InputError(
                    f"stage {declared.name}: labels along {dim!r} from {names.parameter!r}, which is none of "
                    f"its parameters{suggestion(names.parameter, known)}"
                )
        else:
            sorted_unique(dim, names)
