"""Toy stages: arithmetic that counts its own executions. Importable by workers."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from pipeline import At, Chunks, Cost, Dims, Keyed, Node, Place, Resources, Workflow, stage
from pipeline.declare.stage import stage_of

LOG = "QUARKLINE_TOY_LOG"
SLEEP = "QUARKLINE_TOY_SLEEP"


def executed(name: str, at: At) -> None:
    """Appends one line per execution, in one write."""
    path = os.environ.get(LOG)
    if path:
        line = {"stage": name, "at": {dim: list(values) for dim, values in at.items()}, "time": time.time()}
        line["pid"] = os.getpid()
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, (json.dumps(line) + "\n").encode())
        os.close(handle)
    time.sleep(float(os.environ.get(SLEEP, "0")))


class Costing:
    """A toy stage whose nodes cost what is said."""

    def __init__(self, function: Callable[..., Any], **cost: Any) -> None:
        self.stage = replace(stage_of(function), cost=lambda node: Cost(**cost))


def executions(path: Path) -> list[dict[str, Any]]:
    """All executions so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Field(NamedTuple):
    values: Annotated[np.ndarray, Dims("site")]


class Bulk(NamedTuple):
    values: Annotated[np.ndarray, Dims("noise", "site")]


class Loops(NamedTuple):
    current: Annotated[np.ndarray, Dims("noise", "time")]
    total: Annotated[np.ndarray, Dims("noise")]


class Parts(NamedTuple):
    parts: Annotated[np.ndarray, Dims("site", "part")]


class Mean(NamedTuple):
    mean: Annotated[np.ndarray, Dims("time")]
    count: Annotated[np.ndarray, Dims()]


def number(label: object) -> int:
    return sum(map(ord, str(label)))


@stage(version="1", over=("config",))
def field(*, at: At, scale: float = 1.0, path: Path | None = None) -> Field:
    executed("field", at)
    offset = float(path.read_text()) if path else 0.0
    return Field(scale * np.arange(6.0) + number(at.one("config")) + offset)


def fields(configs: Iterable[object] = "a", name: str = "w") -> tuple[Workflow, Node]:
    """A workflow with fields of these configurations, and their node."""
    w = Workflow(name)
    return w, w.add(field, place=Place(over={"config": list(configs)}))


@stage(version="1", over=("config",), labels={"part": ("re", "im")})
def parts(field: Field, *, at: At, number: int = 2) -> Parts:
    executed("parts", at)
    return Parts(np.multiply.outer(field.values, np.arange(number)))


@stage(version="1", over=("config",), keyed=Keyed(without=("patience",)))
def limited(*, at: At, scale: float, patience: int) -> Field:
    executed("limited", at)
    if patience < 10:
        raise ValueError("patience is at an end: raise it")
    return Field(scale * np.arange(6.0))


@stage(version="1", over=("config",))
def overtaken(*, at: At, path: Path) -> Field:
    """Reads a file that somebody replaces before it is read."""
    executed("overtaken", at)
    path.write_text("25.5")
    return Field(np.full(6, float(path.read_text())))


@stage(version="1", over=("config", "noise"), resources=Resources(device=1), keyed=Keyed(chunk=True))
def loops(field: Field, *, at: At, mass: float) -> Loops:
    executed("loops", at)
    noise = np.array(at["noise"], float)
    at.record(iterations=[int(n) for n in noise], nothing=float("nan"))
    at.progress(len(noise), len(noise), residual=1e-9)
    current = np.outer(noise + 1, field.values[:4]) / mass
    return Loops(current, current.sum(axis=1))


@stage(version="1", over=("config", "noise"), transient=True)
def bulk(field: Field, *, at: At, shift: float = 0.0) -> Bulk:
    executed("bulk", at)
    at.record(shifted=shift)
    at.progress(1, 2)
    return Bulk(np.add.outer(np.array(at["noise"], float), field.values) + shift)


@stage(version="1", over=("config", "noise"))
def first(bulk: Bulk, *, at: At) -> Loops:
    executed("first", at)
    return Loops(bulk.values[:, :4], bulk.values.sum(axis=1))


@stage(version="1", over=("config", "noise"))
def second(bulk: Bulk, *, at: At) -> Loops:
    executed("second", at)
    return Loops(bulk.values[:, 1:5], bulk.values.max(axis=1))


@stage(version="1", over=("config", "noise"))
def correction(fine: Loops, *, at: At) -> Loops:
    executed("correction", at)
    return Loops(fine.current * 0.5, fine.total * 0.5)


@stage(version="1", over=("config",))
def config_mean(loops: Chunks[Loops], *, at: At) -> Mean:
    executed("config_mean", at)
    rows = np.concatenate([result.current for _, result in loops])
    return Mean(rows.mean(axis=0), np.array(len(rows)))


@stage(version="1")
def mean(loops: Chunks[Loops], *, at: At) -> Mean:
    executed("mean", at)
    assert [a.one("config") for a, _ in loops] == sorted(a.one("config") for a, _ in loops)
    rows = np.concatenate([result.current for _, result in loops])
    return Mean(rows.mean(axis=0), np.array(len(rows)))


class Setup:
    """Any object: what a transient stage may return."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values


@stage(version="1", over=("config",), transient=True, resident=True)
def setup(field: Field, *, at: At) -> Setup:
    executed("setup", at)
    return Setup(field.values**2)


@stage(version="1", over=("config", "noise"))
def with_setup(setup: Setup, *, at: At) -> Loops:
    executed("with_setup", at)
    rows = np.array([setup.values[:4] + n for n in map(int, at["noise"])])
    return Loops(rows, rows.sum(axis=1))


@stage(version="1", over=("config",))
def with_two_setups(first: Setup, second: Setup, *, at: At) -> Field:
    executed("with_two_setups", at)
    return Field(first.values + second.values)


@stage(version="1", over=("config",))
def fragile(field: Field, *, at: At, bad: tuple[str, ...] = ()) -> Field:
    executed("fragile", at)
    if at.one("config") in bad:
        raise ValueError(f"configuration {at.one('config')} is bad")
    return Field(field.values + 1)


@stage(version="1", over=("config",))
def deadly(field: Field, *, at: At, bad: tuple[str, ...] = ()) -> Field:
    """Kills its worker, as running out of memory does."""
    executed("deadly", at)
    if at.one("config") in bad:
        os.kill(os.getpid(), signal.SIGKILL)
    return Field(field.values + 1)


@stage(version="1", over=("config",))
def endless(field: Field, *, at: At, bad: tuple[str, ...] = (), tell: bool = False) -> Field:
    """Never returns for the bad ones; `tell`: after news of its progress."""
    executed("endless", at)
    if tell:
        at.progress(1, 100)
    while at.one("config") in bad:
        time.sleep(1)
    return Field(field.values + 1)


@stage(version="1", over=("config",))
def leaking(field: Field, *, at: At, bad: tuple[str, ...] = ()) -> Field:
    """Takes ever more memory for the bad ones."""
    executed("leaking", at)
    held = []
    while at.one("config") in bad:
        held.append(np.ones(4_000_000))
        time.sleep(0.05)
    return Field(field.values + 1)


@stage(version="1", over=("config",))
def hungry(field: Field, *, at: At, size: int) -> Field:
    """Takes this many bytes for a while."""
    executed("hungry", at)
    held = np.ones(size // 8)
    time.sleep(1.0)
    return Field(field.values + held[:6])


@stage(version="1", over=("config",))
def freezing(field: Field, *, at: At, bad: tuple[str, ...] = ()) -> Field:
    """Stops its worker's process, the first time."""
    before = sum(line["stage"] == "freezing" for line in executions(Path(os.environ[LOG])))
    executed("freezing", at)
    if at.one("config") in bad and not before:
        os.kill(os.getpid(), signal.SIGSTOP)
    return Field(field.values + 1)


@stage(version="1", over=("config",))
def flaky(*, at: At, wrapped: bool = False) -> Field:
    """Twice the file server does not answer; `wrapped`: which a reader says in words of its own."""
    executed("flaky", at)
    if sum(line["stage"] == "flaky" for line in executions(Path(os.environ[LOG]))) % 3:
        try:
            raise OSError(errno.ESTALE if wrapped else errno.EIO, "the file server is away")
        except OSError as error:
            if wrapped:
                raise ValueError("numbers.txt cannot be read") from error
            raise
    return Field(np.zeros(6))


@stage(version="1", over=("config",))
def away(*, at: At, bad: tuple[str, ...]) -> Field:
    """The file server of the bad ones never answers."""
    executed("away", at)
    if at.one("config") in bad:
        raise OSError(errno.ETIMEDOUT, "the file server is away")
    return Field(np.zeros(6))


@stage(version="1", over=("config",))
def filling(*, at: At) -> Field:
    """Leaves its worker no room to write what it returns."""
    executed("filling", at)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
    return Field(np.zeros(100_000))


@stage(version="1", over=("config",), resources=Resources(device=2))
def greedy(*, at: At) -> Field:
    executed("greedy", at)
    return Field(np.zeros(6))


@stage(version="1", over=("config",), keyed=Keyed(backend=True), resources=Resources(device=1))
def chain(*, at: At) -> Field:
    executed("chain", at)
    return Field(np.full(6, number(at.backend)))


class Space(NamedTuple):
    vectors: Annotated[np.ndarray, Dims("time", "vector", pieces={"time": 1, "vector": 4})]
    count: Annotated[np.ndarray, Dims()]


class OneVector(NamedTuple):
    values_of_one: Annotated[np.ndarray, Dims("time")]
    read_as: Annotated[np.ndarray, Dims()]


@stage(version="1", over=("config",))
def space(*, at: At) -> Space:
    executed("space", at)
    return Space(np.add.outer(10.0 * np.arange(3), np.arange(9)) + number(at.one("config")), np.array(9))


@stage(version="1", over=("config",))
def one_vector(space: Space, *, at: At) -> OneVector:
    """One column; and whether it was given an array on disk."""
    executed("one_vector", at)
    return OneVector(space.vectors[:, 7], np.array(int(not isinstance(space.vectors, np.ndarray))))


@stage(version="1", over=("config",))
def steps(*, at: At, number: int) -> Field:
    """A long computation that keeps its state; one execution is logged per step."""
    state = at.checkpoint.load() if at.checkpoint else None
    values, first = (state["values"], int(state["done"])) if state else (np.zeros(6), 0)
    for step in range(first, number):
        executed("steps", at)
        values = np.cos(values + step)
        at.progress(step + 1, number)
        if at.checkpoint:
            at.checkpoint.save(lambda: {"values": values, "done": np.array(step + 1)})  # noqa: B023
    at.record(first=first)
    return Field(values)
