"""Toy stages in whose workers memory and arithmetic go wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import toy_stages as toys

from pipeline import At, Dims, Keyed, stage
from stages.base.errors import WrongResultError


class Sum(NamedTuple):
    total: Annotated[np.ndarray, Dims("noise")]


def executed_before(name: str, at: At) -> int:
    """Executions of a chunk so far, in any process; this one is written down."""
    where = {dim: list(values) for dim, values in at.items()}
    lines = toys.executions(Path(os.environ[toys.LOG]))
    before = sum(line["stage"] == name and line["at"] == where for line in lines)
    toys.executed(name, at)
    return before


def flip(array: np.ndarray, bit: int = 13) -> None:
    """Turns a bit of an array over."""
    array.reshape(-1).view(np.uint8)[bit // 8] ^= 1 << bit % 8


@stage(version="1", over=("config", "noise"))
def damaging(setup: toys.Setup, *, at: At, bad: tuple[int, ...] = (), always: bool = False) -> Sum:
    """What it was given changes under its hands, for the bad ones, the first time or always."""
    before = executed_before("damaging", at)
    total = Sum(np.array([setup.values.sum() + n for n in map(int, at["noise"])]))
    if set(bad) & set(at["noise"]) and (always or not before):
        flip(setup.values)
    return total


@stage(version="1", over=("config", "noise"), keyed=Keyed(without=("bad",)))
def sometimes_wrong(field: toys.Field, *, at: At, bad: tuple[int, ...] = ()) -> Sum:
    """Wrong for the bad ones, the first time."""
    first = not executed_before("sometimes_wrong", at)
    total = np.array([field.values.sum() * (n + 1) for n in map(int, at["noise"])])
    if first and set(bad) & set(at["noise"]):
        total += 1.0
    if at.again is not None:
        values = at.again("field").values
        if not np.array_equal(total, [values.sum() * (n + 1) for n in map(int, at["noise"])]):
            raise WrongResultError("the sum is another one when it is computed again")
        at.record(repeated="all of it")
    return Sum(total)


@stage(version="1", over=("config", "noise"))
def doubled(sums: Sum, *, at: At) -> Sum:
    toys.executed("doubled", at)
    return Sum(2 * sums.total)
