"""Parameters of a stage; those that are frozen dataclasses stand in keys and records field by field."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from stages.base.errors import InputError, suggestion

Parameters = dict[str, Any]
"""Values of a stage's parameters by name."""


@dataclass(frozen=True)
class Parameter:
    """One keyword-only argument of a stage."""

    name: str
    type: Any
    default: object

    @property
    def required(self) -> bool:
        """True if a workflow must give it."""
        return self.default is inspect.Parameter.empty

    @property
    def group(self) -> type | None:
        """The dataclass that it is declared to be (alone, or as `X | None`), else None."""
        options = [hint for hint in self._options if hint is not type(None)]
        lone = options[0] if len(options) == 1 else None
        return lone if isinstance(lone, type) and is_dataclass(lone) else None

    @property
    def _options(self) -> tuple[object, ...]:
        hint = get_args(self.type)[0] if get_origin(self.type) is Annotated else self.type
        return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)

    @property
    def recorded_names(self) -> tuple[str, ...]:
        """Names under which it stands in keys, records and manifests; its own, too, where it may be None."""
        if self.group is None:
            return (self.name,)
        names = tuple(recorded_name(field) for field in fields(self.group))
        return (self.name, *names) if len(self._options) > 1 and self.name not in names else names


def recorded_name(field: Field[Any]) -> str:
    """A field's own name, or the one in `field(metadata={"key": ...})`."""
    return str(field.metadata.get("key", field.name))


def flattened(parameters: Sequence[Parameter], values: Mapping[str, Any]) -> Parameters:
    """Values by recorded name: the fields of a declared dataclass stand beside the other parameters."""
    flat: Parameters = {}
    for parameter in parameters:
        if parameter.name not in values:
            continue
        value, group = values[parameter.name], parameter.group
        if group is None or value is None:
            flat[parameter.name] = value
        else:
            flat |= {recorded_name(field): getattr(value, field.name) for field in fields(group)}
    return flat


def check_parameters(
    stage_name: str, parameters: Sequence[Parameter], without: Sequence[str], later: Sequence[str] = ()
) -> None:
    """Refuse the engine's word, dataclasses that may change, names that clash, and unknown keyed ones.

    A `later` parameter has a default and is no dataclass.
    """
    owners: dict[str, str] = {}
    for parameter in parameters:
        if parameter.name == "place":
            raise InputError(
                f"stage {stage_name}: a parameter cannot be called 'place', the word under which "
                "Workflow.add takes the engine's own options: call it otherwise"
            )
        _check_group(stage_name, parameter)
        for name in parameter.recorded_names:
            if name in owners:
                raise InputError(
                    f"stage {stage_name}: parameters {owners[name]!r} and {parameter.name!r} would both "
                    f"stand as {name!r} in keys: rename one, or give field(metadata={{'key': ...}})"
                )
            owners[name] = parameter.name
    for name in without:
        if name not in owners:
            raise InputError(
                f"stage {stage_name}: Keyed(without=...) names {name!r}, which is no parameter"
                f"{suggestion(name, owners)}"
            )
    plain = {each.name for each in parameters if not each.required and each.group is None}
    for name in later:
        if name not in plain:
            raise InputError(
                f"stage {stage_name}: Keyed(later=...) names {name!r}, which is no parameter with a default "
                f"of its own{suggestion(name, plain)}"
            )


def _check_group(stage_name: str, parameter: Parameter) -> None:
    group = parameter.group
    if group is not None and not group.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise InputError(
            f"stage {stage_name}: parameter {parameter.name!r} is a {group.__name__}, which must be a frozen "
            "dataclass: declare it with @dataclass(frozen=True)"
        )


def accepted(node: str, stage: str, parameters: Sequence[Parameter], values: Mapping[str, Any]) -> Parameters:
    """The values of all parameters, defaults filled in; whole numbers for a float are that float.

    Args:
        node: its name, for messages.
        stage: its name, for messages.
        parameters: those that the stage declares.
        values: those that were given, by name.

    Raises:
        InputError: a parameter is unknown, missing, or not of the dataclass that it is declared to be.
    """
    known = {parameter.name: parameter for parameter in parameters}
    for name in values:
        if name not in known:
            raise InputError(
                f"node {node!r}: stage {stage} has no parameter {name!r}{_suggested(name, parameters)}"
            )
    for name, parameter in known.items():
        if name not in values and parameter.required:
            raise InputError(f"node {node!r}: parameter {name!r} of stage {stage} is missing")
    return {
        name: _accepted(node, parameter, values.get(name, parameter.default))
        for name, parameter in known.items()
    }


def _accepted(node: str, parameter: Parameter, value: object) -> object:
    group = parameter.group
    if group is not None and type(value) is not group and value is not None:
        raise InputError(
            f"node {node!r}: parameter {parameter.name!r} must be a {group.__name__}, got {value!r}"
        )
    if parameter.type is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _suggested(name: str, parameters: Sequence[Parameter]) -> str:
    """The nearest parameter, or where a field of one of them belongs."""
    for parameter, field in _fields_of(parameters):
        if name in (field, f"{parameter.name}_{field}"):
            assert parameter.group is not None
            return f"; {field!r} is a field of {parameter.name}={parameter.group.__name__}(...)"
    grouped = {field for _, field in _fields_of(parameters)}
    return suggestion(name, {*(parameter.name for parameter in parameters), *grouped})


def _fields_of(parameters: Sequence[Parameter]) -> Iterator[tuple[Parameter, str]]:
    for parameter in parameters:
        if parameter.group is not None:
            for field in fields(parameter.group):
                yield parameter, field.name
