"""The table of measured choices: a JSON file per kind of device, in the user's cache.

Any number of processes may read and extend it. Writers take turns, reread, add what is theirs and replace the
file as a whole; readers never wait and never see half a file.
"""

from __future__ import annotations

import fcntl
import json
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stages.base.atomic import replacing
from stages.base.errors import InputError
from stages.base.user_cache import CACHE_VARIABLE, cache_folder

FORMAT = 1


@dataclass(frozen=True)
class DeviceKind:
    """A kind of GPU: its name, and its compute capability as in ``9.0``."""

    name: str
    capability: str


@dataclass(frozen=True)
class Finding:
    """Result of measuring one problem: shapes, and seconds per call."""

    problem: str
    key: str
    model: dict[str, Any]
    model_seconds: float
    shape: dict[str, Any]
    seconds: float
    candidates: int
    rejected: tuple[str, ...]
    """Candidates that do not start here, or whose results differ from the model's by more than rounding."""


@dataclass(frozen=True)
class Entry:
    """Measurement of a problem: the best shape, its seconds and those of the model's first candidate.

    seconds are per call; `measured` is a UTC time in ISO format; `driver` and `cupy` are versions.
    """

    shape: dict[str, Any]
    seconds: float
    model_seconds: float
    measured: str
    driver: str
    cupy: str


Table = dict[str, Entry]
"""By problem and digest of the kernel's source: `table_key`."""


def table_key(problem: str, digest: str) -> str:
    """An entry holds for one text of the kernel: a changed source finds none."""
    return f"{problem} source={digest[:16]}"


def table_path(device: DeviceKind) -> Path:
    """The file of a kind of device."""
    name = re.sub(r"\W+", "-", device.name).strip("-")
    return cache_folder() / "tuning" / f"{name}-sm_{device.capability.replace('.', '')}.json"


def read_table(path: Path) -> Table:
    """The entries of a file; none if there is no file. What is damaged is left out, with one warning."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        _warn(path, str(error))
        return {}
    try:
        content = json.loads(text)
        choices = content["choices"].items() if content["format"] == FORMAT else ()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        _warn(path, "it is no table of choices")
        return {}
    table = {key: entry for key, value in choices if (entry := _entry(value)) is not None}
    if len(table) < len(choices):
        _warn(path, f"{len(choices) - len(table)} of its {len(choices)} entries make no sense")
    return table


def merge_into_table(path: Path, device: DeviceKind, new: Mapping[str, Entry]) -> Table:
    """Add entries to a file and return all that it then holds; for one key, what was measured later stays.

    Raises InputError if the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            table = read_table(path)
            for key, entry in new.items():
                table[key] = max(table.get(key, entry), entry, key=lambda one: one.measured)
            with replacing(path) as file:
                file.write(_text(device, table).encode())
    except OSError as error:
        raise InputError(
            f"the table of kernel choices {path} cannot be written ({error.strerror or error}): "
            f"make room or set {CACHE_VARIABLE} to a folder that can be written"
        ) from error
    return table


def _text(device: DeviceKind, table: Table) -> str:
    choices = {key: asdict(table[key]) for key in sorted(table)}
    return json.dumps({"format": FORMAT, **asdict(device), "choices": choices}, indent=1) + "\n"


def _entry(value: Any) -> Entry | None:
    """An entry as read, if it is one."""
    try:
        entry = Entry(**value)
    except TypeError:
        return None
    times = (entry.seconds, entry.model_seconds)
    sound = (
        isinstance(entry.shape, dict)
        and all(isinstance(time, float) and math.isfinite(time) and time > 0 for time in times)
        and all(isinstance(text, str) for text in (entry.measured, entry.driver, entry.cupy))
    )
    return entry if sound else None


def _warn(path: Path, why: str) -> None:
    warnings.warn(
        f"the table of kernel choices {path} is not used as it is ({why}); "
        "`quarkline tune` mends it, and kernels are right without",
        RuntimeWarning,
        stacklevel=3,
    )
