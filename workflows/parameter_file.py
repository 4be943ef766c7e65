"""A workflow's parameter file: YAML with line numbers, checked by pydantic; mistakes named by line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, field_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from pipeline.store.plain_files import text_of
from stages.base.errors import InputError, check_magnitude, nearest, suggestion
from workflows.yaml_text import BINARY, Location, parsed, shown, text_in

if TYPE_CHECKING:
    from stages.lqcd.lattice.geometry import Lattice

Problem = tuple[Location, str]
"""Where in a file, and what is wrong there."""


class FileSection(BaseModel):
    """A mapping of a parameter file: no key but those declared, no value of another type, never altered."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    @field_validator("*")
    @classmethod
    def _computable(cls, value: Any) -> Any:
        for place, number in _numbers(value):
            try:
                check_magnitude(number)
            except InputError as error:
                context = {"error": str(error), "place": place}
                raise PydanticCustomError("value_error", "{error}", context) from None
        return value

    def contradictions(self) -> Iterable[Problem]:
        """Problems that no single value shows; places begin at this section."""
        return ()

    def misfits(self, lattice: Lattice) -> Iterable[Problem]:
        """Problems with the lattice."""
        return ()

    def doubts(self) -> Iterable[Problem]:
        """Input that is legal but rarely meant, besides numbers that are unusual by themselves.

        Plan, run and report warn about it.
        """
        return ()

    def parts(self, location: Location = ()) -> Iterator[tuple[Location, FileSection]]:
        """This section and those within it, each with its place in the file."""
        yield location, self
        for name, value in self:
            inside: Iterable[tuple[Location, object]] = [((name,), value)]
            if isinstance(value, dict | tuple):
                keys = value if isinstance(value, dict) else range(len(value))
                inside = [((name, key), value[key]) for key in keys]
            for place, part in inside:
                if isinstance(part, FileSection):
                    yield from part.parts((*location, *place))

    def gathered(self, of: Callable[[FileSection], Iterable[Problem]]) -> Iterator[Problem]:
        """Problems of this section and those within it, as one of the methods above names them."""
        for location, part in self.parts():
            yield from (((*location, *place), text) for place, text in of(part))


Content = TypeVar("Content")


@dataclass(frozen=True)
class ParameterFile:
    """The plain values of a YAML file and the line (from 1) on which each of them stands."""

    path: Path
    values: dict[str, Any]
    lines: Mapping[Location, int]
    options: Mapping[Location, str] = field(default_factory=dict)
    """Options of a command that gave values instead of the file."""
    text: str = ""

    def with_value(self, keys: Sequence[str], value: Any, option: str) -> ParameterFile:
        """A copy with another value, given by an option of a command.

        Raises:
            InputError: the place is in what is neither a section nor a list.
        """
        values, location = _placed(self.values, keys, value, option)

        def without(places: Mapping[Location, Any]) -> dict[Location, Any]:
            return {place: at for place, at in places.items() if place[: len(location)] != location}

        options = {**without(self.options), location: option}
        return replace(self, values=values, lines=without(self.lines), options=options)

    @property
    def changes(self) -> tuple[str, ...]:
        """Values that `--set` gave, `KEY=VALUE`, in the order of the keys."""
        given = (option for option in self.options.values() if option.startswith(SET))
        return tuple(sorted(option.removeprefix(SET) for option in given))

    def name(self, *location: str | int) -> str:
        """Name of a value in messages: "`noise.vectors` (line 12)"."""
        keys = ".".join(str(part) for part in location if isinstance(part, str))
        return f"`{keys}` ({self.place(location)})"

    def place(self, location: Location) -> str:
        """Place of a value, or of the nearest section above it: "line 12", or an option."""
        while location not in self.options and location not in self.lines and location:
            if below := self._inside(location):
                return below[0]
            location = location[:-1]
        line = f"line {self.line(location)}"
        return self.options.get(location) or ", ".join([line, *(self._inside(location) if location else ())])

    def _inside(self, location: Location) -> list[str]:
        """Options that gave values within a section or a list."""
        return [option for place, option in self.options.items() if place[: len(location)] == location]

    def line(self, location: Location) -> int:
        """The line of a value, or of the nearest section above it that the file has."""
        while location not in self.lines:
            location = location[:-1]
        return self.lines[location]

    def error(self, *problems: str) -> InputError:
        """One error for all `problems` of this file."""
        if len(problems) == 1:
            return InputError(f"{self.path}: {problems[0]}")
        listed = "\n".join(f"  - {problem}" for problem in problems)
        return InputError(f"{self.path}: {len(problems)} problems\n{listed}")

    def warnings(self, doubts: Iterable[Problem]) -> tuple[str, ...]:
        """Messages about input that is legal but rarely meant."""
        return tuple(f"{self.path}: {self.name(*location)}: {text}" for location, text in doubts)

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Raise one InputError where there are `problems`."""
        if named := [f"{self.name(*location)}: {text}" for location, text in problems]:
            raise self.error(*named)


SET = "--set "


def changed(file: ParameterFile, changes: Iterable[str]) -> ParameterFile:
    """A file with other values, each `KEY=VALUE`: a key by its sections, `masses.light`, a value of YAML.

    Raises:
        InputError: no key, no value, or a place in what is neither a section nor a list.
    """
    for change in changes:
        key, equals, text = change.partition("=")
        keys = key.strip().split(".")
        if not equals or not all(keys):
            raise InputError(
                f"{SET}{change}: write KEY=VALUE with the key as in the file, its sections before it: "
                "masses.light=0.1, cluster.walltime=04:00:00"
            )
        try:
            value, _ = parsed(text)
        except InputError as error:
            fault = str(error).replace("line 1: ", "")
            raise InputError(f"{SET}{change}: {fault}") from None
        file = file.with_value(keys, value, f"{SET}{key.strip()}={text.strip()}")
    return file


def _placed(section: Any, keys: Sequence[str], value: Any, option: str) -> tuple[Any, Location]:
    """A section or list with another value at a place in it, and the place; it is not altered itself."""
    first, *rest = keys
    if isinstance(section, list):
        if not (first.isdecimal() and int(first) < len(section)):
            has = f"values 0 to {len(section) - 1}" if section else "no values"
            raise InputError(f"{option}: `{first}` is no place in a list with {has}: set the whole list")
        number = int(first)
        inner, below = _placed(section[number], rest, value, option) if rest else (value, ())
        return [*section[:number], inner, *section[number + 1 :]], (number, *below)
    if not isinstance(section, dict | None):
        raise InputError(f"{option}: `{first}` is set in what is no section: set the whole of it")
    held = section or {}
    inner, below = _placed(held.get(first), rest, value, option) if rest else (value, ())
    return {**held, first: inner}, (first, *below)


def read_parameter_file(path: Path, changes: Iterable[str] = ()) -> ParameterFile:
    """The values and lines of the YAML mapping in `path`, with changes as of `changed`.

    Raises:
        InputError: no such file, a device, not text, too long, not YAML (with the line), a key given twice,
            tags, nesting or aliases beyond what a parameter file needs, or not a mapping.
    """
    try:
        return changed(parameters_in(path, text_in(path)), changes)
    except FileNotFoundError:
        raise InputError(f"{path}: no such workflow file{_similar_file(path)}") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: cannot be read as a text file: byte {error.object[error.start]:#04x} at {error.start} "
            f"is no UTF-8; write the file in UTF-8, {BINARY}"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read as a text file: {error}") from None


def parameters_in(path: Path, text: str) -> ParameterFile:
    """The values and lines of the YAML mapping in a text; path: its name in messages. Raises InputError."""
    try:
        values, lines = parsed(text)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    if values is None:
        raise InputError(f"{path}: the file is empty; start from one that `quarkline init` writes")
    if not isinstance(values, dict):
        raise InputError(
            f"{path}: a workflow file holds `key: value` lines, found {shown(values)}; start from one that "
            "`quarkline init` writes"
        )
    return ParameterFile(path, values, lines, text=text)


def names_workflow(path: Path) -> bool:
    """True for a file with a line `workflow: ...`."""
    return any(line.startswith("workflow:") for line in text_of(path).splitlines())


def validated(file: ParameterFile, model: type[Content]) -> Content:
    """The file's values as a `model`, a section or a mapping of sections.

    Raises:
        InputError: every unknown or missing key and every bad value of the file, each with its line.
    """
    try:
        return TypeAdapter(model).validate_python(file.values)
    except ValidationError as error:
        details = sorted(map(_within, error.errors()), key=lambda detail: file.line(detail["loc"]))
        problems = [_problem(file, model, detail) for detail in _without_echoes(model, details)]
        raise file.error(*dict.fromkeys(problems)) from None  # of several values in a list one may be enough


def _within(detail: ErrorDetails) -> ErrorDetails:
    """A problem at its place within a list or mapping, where the check of the whole names it."""
    return {**detail, "loc": (*detail["loc"], *detail.get("ctx", {}).get("place", ()))}


def _numbers(value: object, place: Location = ()) -> Iterator[tuple[Location, Any]]:
    """Numbers in a value, in lists and mappings of it, and where they are."""
    if isinstance(value, Real):
        yield place, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _numbers(each, (*place, key))
    elif isinstance(value, list | tuple | Set):
        for i, each in enumerate(value):
            yield from _numbers(each, (*place, i))


def _without_echoes(model: type, details: list[ErrorDetails]) -> list[ErrorDetails]:
    """Leaves out what another problem says already.

    That is "missing key `mass`" beside "unknown key `masss`: did you mean `mass`?", and that a list is too
    short where it is not, but has bad values, which are not counted.
    """
    meant = {
        (*detail["loc"][:-1], _meant(model, detail["loc"]))
        for detail in details
        if detail["type"] == "extra_forbidden"
    }
    return [
        detail
        for detail in details
        if not (detail["type"] == "missing" and detail["loc"] in meant)
        and not (detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"])
    ]


def _meant(model: type, location: Location) -> str | None:
    """The key that a misspelt one most resembles."""
    return nearest(location[-1], _keys(model, location[:-1]))


def _problem(file: ParameterFile, model: type, detail: ErrorDetails) -> str:
    location, kind = detail["loc"], detail["type"]
    section = ".".join(part for part in location[:-1] if isinstance(part, str))
    where = f"in `{section}`" if section else "at the top level"
    if kind == "extra_forbidden":
        hint = _ELSEWHERE.get(str(location[-1])) or suggestion(
            location[-1], _keys(model, location[:-1]), mark="`"
        )
        return f"unknown key `{location[-1]}` {where} ({file.place(location)}){hint}"
    if kind == "invalid_key" or location[-1:] == ("[key]",):
        place = file.place((*location[:-1], detail["input"]))
        key = "null" if detail["input"] is None else shown(detail["input"])
        fault = f"unknown key {key} {where} ({place}): a key is a word"
        of_a_comma = type(detail["input"]) is int and section  # {light: 0,1} has the keys light and 1
        return f"{fault}, and a number has a decimal point: 0.1" if of_a_comma else fault
    if kind == "missing":
        return f"missing key `{location[-1]}` {where} ({file.place(location)}){_choice(model, location)}"
    if kind == "value_error":
        return f"{file.name(*location)}: {detail['ctx']['error']}"
    return (
        f"{file.name(*location)} is {shown(detail['input'])}, expected {_expected(detail)}{_remedy(detail)}"
    )


_ELSEWHERE = dict.fromkeys(
    ("mu", "two_kappa_mu"),
    ": a twisted mass belongs to Wilson quarks, in `quark` of mesons and laph_mesons: leave it out",
)
"""Hints for keys of other actions."""

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "model_type": "a section of `key: value` lines",
    "tuple_type": "a list in [ ]",
    "dict_type": "a section of `key: value` lines",
    "too_long": "{max_length} values",
    "too_short": "{min_length} values",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
}


def _expected(detail: ErrorDetails) -> str:
    if detail["type"] == "too_short" and detail["ctx"]["min_length"] == 1:
        return "at least one value"
    if detail["type"] in _EXPECTED:
        return _EXPECTED[detail["type"]].format(**detail.get("ctx", {}))
    return str(detail["msg"])


def _remedy(detail: ErrorDetails) -> str:
    """A number that is written otherwise, as it must be written; a list that stands within no list."""
    kind, value = detail["type"], detail["input"]
    if kind == "tuple_type" and isinstance(detail["loc"][-1], int):
        return " of its own within the list"
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return f": {int(value)}"
    if kind not in ("float_type", "int_type") or not isinstance(value, str):
        return ""
    if re.fullmatch(r"[-+]?\d+,\d+([eE][-+]?\d+)?", value):
        return f", with a decimal point: {value.replace(',', '.')}"
    if re.fullmatch(r"[-+]?\d+\.?\d*[dD][-+]?\d+", value):
        return f", with an e: {value.lower().replace('d', 'e')}"
    if re.fullmatch(r"[-+]?\d+" if kind == "int_type" else r"[-+]?\d+\.?\d*([eE][-+]?\d+)?", value):
        return f", without quotes: {value}"
    return ""


def _keys(model: type, location: Location) -> list[str]:
    """The keys that the section at `location` of a `model` may have."""
    annotation: Any = model
    for part in (part for part in location if isinstance(part, str)):  # a list has sections, one a place
        inside = (
            each.model_fields[part].annotation for each in _sections(annotation) if part in each.model_fields
        )
        annotation = next(_named_values(annotation), None) or next(inside, annotation)
    return list(dict.fromkeys(key for each in _sections(annotation) for key in each.model_fields))


def _choice(model: type, location: Location) -> str:
    """What to write for a missing section that is a choice of words, such as `current: {links: thin}`."""
    owners = _sections(model) if len(location) == 1 else ()
    missing = (each.model_fields[str(location[-1])].annotation for each in owners)
    for section in _sections(next(missing, None)):
        fields = {name: field for name, field in section.model_fields.items() if field.is_required()}
        words = {name: get_args(field.annotation) for name, field in fields.items()}
        if words and all(get_origin(field.annotation) is Literal for field in fields.values()):
            shown = ", ".join(f"{name}: {' or '.join(choices)}" for name, choices in words.items())
            return f": write `{location[-1]}: {{{shown}}}`"
    return ""


def _named_values(annotation: Any) -> Iterator[Any]:
    """Types of the values of mappings whose keys a user chooses, such as the names of alternatives."""
    if get_origin(annotation) in (dict, Mapping):
        yield get_args(annotation)[1]
    elif get_origin(annotation) in (Union, UnionType):
        for inside in get_args(annotation):
            yield from _named_values(inside)


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inside in get_args(annotation):
        yield from _sections(inside)


def _similar_file(path: Path) -> str:
    close = nearest(path.name, (entry.name for entry in path.parent.glob("*.yaml")))
    return f": did you mean {path.parent / close}?" if close else ""
