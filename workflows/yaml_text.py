"""YAML as parameter files have it: plain values and their lines, without tags and within limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from functools import cache
from io import StringIO
from pathlib import Path
from stat import S_ISDIR, S_ISFIFO, S_ISREG
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent
from ruamel.yaml.scanner import Scanner

from pipeline.store.plain_files import TEXT_BYTES
from stages.base.errors import InputError

Location = tuple[str | int, ...]

MOST_LEVELS = 40
"""Sections within sections: a workflow has about five."""
MOST_VALUES = 100_000
"""Limit of a file, with its aliases written out."""
MOST_DIGITS = 300
"""Limit of a number; a double has 309 before its point at most."""
_NUMBER = re.compile(r"[-+]?(0[bo]?[0-9_:]*|0x[0-9a-fA-F_]*|[0-9_:]*)(\.[0-9_]*)?")
"""Of digits, in any base of YAML 1.1 and 1.2."""


SHELL_PIPE = re.compile("/dev/stdin|/(dev|proc/[a-z0-9]+)/fd/[0-9]+")
"""Pipes that a shell fills."""

BINARY = "and give gauge configurations to `quarkline check`"
"""The remedy for a file that may be one."""


def text_in(path: Path) -> str:
    """The text of a file, or of a pipe of the shell, `<(command)` or `/dev/stdin`.

    A named pipe would never answer, and a device never end. Raises InputError, OSError, UnicodeDecodeError.
    """
    there = path.stat()
    if S_ISFIFO(there.st_mode) and SHELL_PIPE.fullmatch(str(path)):
        content = _piped(path, there.st_ino)
    elif S_ISREG(there.st_mode):
        content = _content(path)
    else:
        folder = S_ISDIR(there.st_mode)
        what = "a folder, name a file in it" if folder else "a device or a named pipe, name a file"
        raise InputError(f"{path}: cannot be read as a text file: it is {what}")
    return StringIO(content.decode(), newline=None).getvalue()


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(TEXT_BYTES + 1)
    if len(content) > TEXT_BYTES:
        raise InputError(
            f"{path}: has more than {TEXT_BYTES} bytes, and no workflow or cluster file comes near that; "
            f"name one, {BINARY}"
        )
    return content


@cache
def _piped(path: Path, number: int) -> bytes:
    """The content of the pipe of that number, which gives it only once: each reader of the file needs it."""
    return _content(path)


def parsed(text: str) -> tuple[Any, dict[Location, int]]:
    """The plain values in a text, and the line (from 1) on which each of them is.

    Raises:
        InputError: not YAML (with the line), a key given twice, tags, nesting or aliases beyond what a
            parameter file needs.
    """
    try:
        if problem := _unreadable(text):
            raise InputError(problem)
        tree = reader().load(text)
    except DuplicateKeyError as error:
        raise InputError(f"{_marked(error)}: remove one of the two") from None
    except YAMLError as error:
        raise InputError(f"not valid YAML: {_marked(error)}") from None
    except InputError:
        raise
    except (TypeError, ValueError) as error:  # such as a list for a key
        raise InputError(f"not valid YAML: {error}; keys are words, values numbers or text") from None
    return _plain(tree), {(): 1, **dict(_lines(tree, ()))}


def reader() -> YAML:
    """A reader that knows lines and skips comments: collecting them, as for writing, fails at some places."""
    reader = YAML(typ="rt")
    reader.Scanner = Scanner
    return reader


def _unreadable(text: str) -> str | None:
    """What in a YAML text no parameter file needs, with its line, before any of it is constructed."""
    counts: list[int] = [0]
    opened: list[str | None] = []
    sizes: dict[str | None, int] = {}
    for event in reader().parse(text):
        line = f"line {event.start_mark.line + 1}"
        if isinstance(event, CollectionEndEvent):
            size, anchor = counts.pop(), opened.pop()
            sizes[anchor] = size
            counts[-1] += size
            continue
        if isinstance(event, AliasEvent):
            if event.anchor in opened:
                return (
                    f"{line}: the alias *{event.anchor} stands within its own section: write the values out"
                )
            counts[-1] += sizes.get(event.anchor, 1)
        elif isinstance(event, ScalarEvent | CollectionStartEvent):
            if event.tag is not None:
                return f"{line}: a parameter file has no tags, got {shown(str(event.tag))}: remove it"
            if event.anchor is not None and (event.anchor in sizes or event.anchor in opened):
                return f"{line}: the anchor &{event.anchor} is there twice: give the second another name"
            counts[-1] += 1
            sizes[event.anchor] = 1
        if isinstance(event, ScalarEvent):
            if "\0" in event.value:
                return f"{line}: the text {shown(event.value)} has a NUL character: remove it"
            if event.style is None and len(event.value) > MOST_DIGITS and _NUMBER.fullmatch(event.value):
                return (
                    f"{line}: a number of {len(event.value)} digits: at most {MOST_DIGITS} are read; "
                    "put text into quotes"
                )
        elif isinstance(event, CollectionStartEvent):
            counts.append(0)
            opened.append(event.anchor)
            if len(opened) > MOST_LEVELS:
                return (
                    f"{line}: more than {MOST_LEVELS} sections or lists within each other: close the brackets"
                )
        if sum(counts) > MOST_VALUES:
            return (
                f"{line}: with its aliases the file has more than {MOST_VALUES} values: write fewer aliases"
            )
    return None


def _plain(node: Any) -> Any:
    """Ordinary Python values of a round-trip YAML tree (whose numbers and strings are subclasses)."""
    if isinstance(node, CommentedMap):
        return {key: _plain(value) for key, value in node.items()}
    if isinstance(node, CommentedSeq):
        return [_plain(value) for value in node]
    for plain in (bool, int, float, str):
        if isinstance(node, plain):
            return plain(node)
    return node


def _lines(node: Any, location: Location, line: int = 1) -> Iterator[tuple[Location, int]]:
    """Lines of the values in a node; those that a merge key `<<` brings have that of their section."""
    values: Iterable[tuple[Any, Any]] = ()
    places: Mapping[Any, Any] = {}
    if isinstance(node, CommentedMap | CommentedSeq):
        values = node.items() if isinstance(node, CommentedMap) else enumerate(node)
        places = node.lc.data or {}
    for key, value in values:
        at = places[key][0] + 1 if key in places else line
        yield (*location, key), at
        yield from _lines(value, (*location, key), at)


_YAML_REMEDIES = {
    "character '\\t'": "indent with blanks, not with tabs",
    "cannot start any token": "put the text into quotes",
    "mapping values are not allowed": "write one `key: value` a line, all keys of a section equally far in",
    "could not find expected ':'": "the line above lacks a colon, or a blank after it",
    "unexpected end of stream": "close the quotes",
    "',' or '": "close the brackets",
    "'<stream end>'": "close the brackets",
    "'<document start>'": "put text that begins with a bracket into quotes",
    "found another document": "the line --- begins a second one: remove it and all that follows",
    "undefined alias": "define it above by &, or put text that begins with * into quotes",
    "unknown escape": "put the text into single quotes",
    "for merging": "give `<<` the alias of a section",
    "not allowed": "remove the character",
    "incompatible": "remove the line %YAML",
}
"""What to do about a fault of YAML, by words of the parser's message."""


def _marked(error: YAMLError) -> str:
    """The fault, its line and the remedy, without the parser's excerpts."""
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        fault = f"line {error.problem_mark.line + 1}: {str(error.problem).removeprefix('but ')}"
    else:
        fault = str(error).splitlines()[0]
    remedy = next((remedy for words, remedy in _YAML_REMEDIES.items() if words in fault), "")
    return f"{fault}: {remedy}" if remedy else fault


def shown(value: object) -> str:
    """A value as a file has it."""
    if value is None or isinstance(value, bool):
        return {None: "empty", True: "true", False: "false"}[value]
    text = (
        str(value) if isinstance(value, date) else repr(dict(value) if isinstance(value, Mapping) else value)
    )
    return text if len(text) <= 60 else text[:57] + "..."
