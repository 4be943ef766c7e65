"""Memory of the host that this process may use: no more than its machine, batch job or container has."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

PROCESS = Path("/proc/self")

LIMITS = "memory.max", "memory.high", "memory.limit_in_bytes"
"""Files of a control group, of version 2 and 1, with a limit in bytes; else with a word, or absent."""

STATM = re.compile(r"(\d+) (\d+) \d+ \d+ \d+ (\d+)")
"""Pages of a process: its size, what is resident, its data."""

TAKEN = "memory.current", "memory.usage_in_bytes"

CACHE = re.compile(r"^(?:total_)?(?:in)?active_file (\d+)$", re.MULTILINE)
"""Pages of files in `memory.stat` of a control group and those inside it, which the kernel gives up."""


def memory_limit(process: Path = PROCESS) -> int:
    """Bytes of the machine, or the least that a control group of the process or a resource limit allows.

    Control groups are those of a Slurm job or a container, at every level. process: its folder in `/proc`.
    """
    groups = (limit for folder in _groups(process) for limit in _limits(folder))
    return min([psutil.virtual_memory().total, *groups, *(soft for soft, _ in _resources(process))])


def available_memory(process: Path = PROCESS) -> int:
    """Bytes that can still be taken before the machine or one of these limits has no more."""
    groups = (limit - _taken(folder) for folder in _groups(process) for limit in _limits(folder))
    own = (soft - used for soft, used in _resources(process))
    return max(0, min([psutil.virtual_memory().available, *groups, *own]))


def _groups(process: Path) -> Iterator[Path]:
    """Folders of the control groups for memory that hold the process, from its own to the outermost."""
    groups = {}
    for line in _text(process / "cgroup").splitlines():
        _, controllers, group = (*line.split(":", 2), "", "")[:3]
        if group and (not controllers or "memory" in controllers.split(",")):
            groups["cgroup" if controllers else "cgroup2"] = group
    for line in _text(process / "mountinfo").splitlines():
        mounted, _, about = line.partition(" - ")
        root, place = map(_unescaped, (*mounted.split(" "), *5 * ("/",))[3:5])
        kind, _, options = (*about.split(" ", 2), "", "")[:3]
        if kind in groups and (kind == "cgroup2" or "memory" in options.split(",")):
            inside = os.path.relpath(groups[kind], root)
            folder = Path(place, "" if inside.startswith("..") else inside)
            yield folder
            yield from (each for each in folder.parents if each.is_relative_to(place))


def _limits(folder: Path) -> Iterator[int]:
    for name in LIMITS:
        if (limit := _number(folder / name)) > 0:
            yield limit


def _taken(folder: Path) -> int:
    """Bytes that a control group cannot give up."""
    taken = next(filter(None, (_number(folder / name) for name in TAKEN)), 0)
    stat = _text(folder / "memory.stat")
    lines = CACHE.finditer(stat)
    nested = "total_inactive_file" in stat  # version 1 tells pages of the group alone, too
    return taken - sum(int(line[1]) for line in lines if line[0].startswith("total_") == nested)


def _resources(process: Path) -> Iterator[tuple[int, int]]:
    """Bytes of each resource limit that is set, and how many of them are taken."""
    pages = STATM.match(_text(process / "statm"))
    size, resident, data = map(int, pages.groups()) if pages else (0, 0, 0)
    used = {resource.RLIMIT_AS: size, resource.RLIMIT_DATA: data, resource.RLIMIT_RSS: resident}
    for kind, taken in used.items():
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            yield soft, taken * resource.getpagesize()


def _number(path: Path) -> int:
    """The number in a file; 0 for a word such as "max", or where there is no file."""
    with suppress(ValueError):
        return int(_text(path))
    return 0


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="surrogateescape")
    except OSError:
        return ""


def _unescaped(word: str) -> str:
    """A path of `mountinfo`, where spaces and the like stand as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


MEMORY_LIMIT = memory_limit()
"""Bytes that this process may use, as it was started."""
