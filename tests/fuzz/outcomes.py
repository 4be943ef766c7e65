"""What becomes of one mutated file, within a limit of time and of memory; and the table of many."""

from __future__ import annotations

import os
import resource
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any

from mutations import Shape
from stages.base.errors import InputError

SECONDS = 10.0
"""Limit of one input."""
BYTES = 1 << 30
"""Memory that reading one input may add."""


class Outcome(StrEnum):
    """Ends of a mutated file's reading."""

    REFUSED = "clean error"
    IDENTICAL = "accepted, identical"
    CHANGED = "accepted, changed"
    UNVERIFIED = "changed, said to lack its checksum"
    HEADER = "same numbers, another header"
    COLLISION = "changed, sums equal"
    CRASH = "crash"
    HANG = "hang"
    MEMORY = "memory above 1 GB"
    WARNED = "warning on stderr"


NEVER = (Outcome.CRASH, Outcome.HANG, Outcome.MEMORY, Outcome.WARNED)


class Hang(BaseException):
    """Raised in the middle of an input that takes too long; no reader may catch it."""


@dataclass
class Tally:
    """Counts of outcomes, the first inputs of each that should not occur, and the slowest input's seconds."""

    counts: Counter[Outcome] = field(default_factory=Counter)
    samples: dict[Outcome, dict[str, bytes]] = field(default_factory=dict)
    slowest: float = 0.0

    def row(self, name: str) -> str:
        """A line of the documents' table."""
        counts = " | ".join(str(self.counts[outcome]) for outcome in Outcome)
        return f"| {name} | {sum(self.counts.values())} | {counts} | {self.slowest:.2f} |"


def write_row(name: str, tally: Tally) -> None:
    """Adds a line to the table that QUARKLINE_FUZZ_TABLE names, if it names one."""
    if path := os.environ.get("QUARKLINE_FUZZ_TABLE"):
        with open(path, "a") as file:
            file.write(tally.row(name) + "\n")


Judge = Callable[[Any], Outcome]
"""Compares what was read with what the healthy file holds."""


def fuzz(
    shape: Shape, read: Callable[[Path], Any], judge: Judge, folder: Path, count: int, seed: int
) -> Tally:
    """Outcomes of `count` mutations of a file; each is drawn from (seed, its number) alone."""
    tally, path = Tally(), folder / "mutated"
    with bounded_memory():
        for number in range(count):
            content = shape.mutated(Random(f"{seed}-{number}"))
            path.unlink(missing_ok=True)
            path.write_bytes(content)
            began = time.perf_counter()
            outcome, about = _outcome(path, read, judge)
            tally.slowest = max(tally.slowest, time.perf_counter() - began)
            tally.counts[outcome] += 1
            samples = tally.samples.setdefault(outcome, {})
            if outcome != Outcome.REFUSED and len(samples) < 20:
                samples.setdefault(f"{seed}-{number}: {about}", content)
    return tally


def _outcome(path: Path, read: Callable[[Path], Any], judge: Judge) -> tuple[Outcome, str]:
    try:
        with warnings.catch_warnings(record=True) as caught, limited():
            warnings.simplefilter("always")
            result = read(path)
    except InputError as error:
        bad = not str(error) or "\x1b" in str(error)
        return (Outcome.CRASH, repr(error)) if bad else _warned(caught, Outcome.REFUSED)
    except Hang:
        return Outcome.HANG, ""
    except MemoryError as error:
        return Outcome.MEMORY, repr(error)
    except BaseException as error:
        return Outcome.CRASH, _where(error)
    return _warned(caught, judge(result))


def _warned(caught: list[warnings.WarningMessage], outcome: Outcome) -> tuple[Outcome, str]:
    """A reader's own words about a file without checksum are no fault; NumPy's are."""
    stray = [each for each in caught if not issubclass(each.category, UserWarning)]
    if stray:
        return Outcome.WARNED, f"{stray[0].filename}:{stray[0].lineno} {stray[0].message}"
    return outcome, ""


def _where(error: BaseException) -> str:
    """The exception and the innermost line of this project that it passed."""
    place, frame = "", error.__traceback__
    while frame is not None:
        name = frame.tb_frame.f_code.co_filename
        if any(part in name for part in ("/stages/", "/workflows/", "/pipeline/")) and "/tests/" not in name:
            place = f"{Path(name).name}:{frame.tb_lineno}"
        frame = frame.tb_next
    return f"{type(error).__name__} at {place}: {str(error)[:120]}"


@contextmanager
def limited() -> Iterator[None]:
    """Raises Hang where the body takes longer than an input may."""

    def expired(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, expired)
    timer = signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Allocations beyond what an input may add raise MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    status = Path("/proc/self/status").read_text()
    held = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (held + BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
