"""Toy stages whose numbers are known in closed form, with places at which faults strike."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import strikes

from pipeline import At, Chunks, Dims, Place, Resources, Workflow, stage

strikes.install()

LOG, SLEEP = "QUARKLINE_FAULT_LOG", "QUARKLINE_FAULT_SLEEP"

CONFIGS = tuple("abcde")
STEPS = 30


def visit(name: str, at: At) -> None:
    """Writes down the execution, takes its time, and may be struck halfway."""
    label = "-".join([name, *(str(value) for values in at.values() for value in values)])
    if path := os.environ.get(LOG):
        line = {"stage": name, "at": {d: list(v) for d, v in at.items()}, "time": time.time()}
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, (json.dumps({**line, "pid": os.getpid()}) + "\n").encode())
        os.close(handle)
    pause = float(os.environ.get(SLEEP, "0")) / 2
    time.sleep(pause)
    strikes.passing("compute", label)
    time.sleep(pause)


def executions(path: Path) -> list[dict[str, Any]]:
    """All executions that were begun so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Field(NamedTuple):
    values: Annotated[np.ndarray, Dims("site")]


class Bulk(NamedTuple):
    values: Annotated[np.ndarray, Dims("noise", "site")]


class Loops(NamedTuple):
    current: Annotated[np.ndarray, Dims("noise", "time")]
    total: Annotated[np.ndarray, Dims("noise")]


class Space(NamedTuple):
    vectors: Annotated[np.ndarray, Dims("time", "vector", pieces={"time": 1, "vector": 4})]


class Mean(NamedTuple):
    mean: Annotated[np.ndarray, Dims("time")]
    count: Annotated[np.ndarray, Dims()]


@stage(version="1", over=("config",))
def field(*, at: At) -> Field:
    visit("field", at)
    return Field(np.arange(6.0) + ord(str(at.one("config"))))


@stage(version="1", over=("config", "noise"), resources=Resources(device=1))
def loops(field: Field, *, at: At, mass: float) -> Loops:
    visit("loops", at)
    current = np.outer(np.array(at["noise"], float) + 1, field.values[:4]) / mass
    return Loops(current, current.sum(axis=1))


@stage(version="1", over=("config",))
def space(field: Field, *, at: At) -> Space:
    visit("space", at)
    return Space(np.add.outer(10.0 * np.arange(2), np.arange(7)) + field.values[0])


@stage(version="1", over=("config", "noise"), transient=True)
def bulk(field: Field, *, at: At) -> Bulk:
    visit("bulk", at)
    return Bulk(np.add.outer(np.array(at["noise"], float), field.values))


@stage(version="1", over=("config", "noise"))
def first(bulk: Bulk, *, at: At) -> Loops:
    visit("first", at)
    return Loops(bulk.values[:, :4], bulk.values.sum(axis=1))


@stage(version="1", over=("config",))
def steps(*, at: At, number: int) -> Field:
    state = at.checkpoint.load() if at.checkpoint else None
    values, begin = (state["values"], int(state["done"])) if state else (np.zeros(6), 0)
    for step in range(begin, number):
        visit("steps", at)
        values = np.cos(values + step)
        at.progress(step + 1, number)
        if at.checkpoint:
            at.checkpoint.save(lambda: {"values": values, "done": np.array(step + 1)})  # noqa: B023
    at.record(first=begin)
    return Field(values)


@stage(version="1")
def mean(loops: Chunks[Loops], space: Chunks[Space], *, at: At) -> Mean:
    visit("mean", at)
    rows = np.concatenate([result.current for _, result in loops])
    shift = sum(float(np.sum(result.vectors)) for _, result in space)
    return Mean(rows.mean(axis=0) + shift, np.array(len(rows)))


def workflow() -> Workflow:
    """Thirty-eight chunks in six stages and one transient one; each fault leaves work for the next."""
    w = Workflow("under_fault")
    fields = w.add(field, place=Place(over={"config": CONFIGS}))
    rows = w.add(loops, fields, place=Place(over={"noise": range(8)}, chunk={"noise": 2}), mass=0.5)
    spaces = w.add(space, fields)
    w.add(first, w.add(bulk, fields, place=Place(over={"noise": range(2)})))
    w.add(steps, place=Place(over={"config": ("x", "y")}), number=STEPS)
    w.add(mean, rows, spaces)
    return w


def expected() -> dict[tuple[str, str], dict[str, np.ndarray]]:
    """The arrays of every chunk by stage and coordinates, by plain NumPy and no engine."""
    wanted: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    total, shift = [], 0.0
    for config in CONFIGS:
        values = np.arange(6.0) + ord(config)
        wanted["field", place_of(config=[config])] = {"values": values}
        for noise in range(0, 8, 2):
            rows = np.array([(n + 1) * values[:4] / 0.5 for n in (noise, noise + 1)])
            total.append(rows)
            where = place_of(config=[config], noise=[noise, noise + 1])
            wanted["loops", where] = {"current": rows, "total": rows.sum(axis=1)}
        vectors = np.array([[10.0 * t + k + values[0] for k in range(7)] for t in range(2)])
        wanted["space", place_of(config=[config])] = {"vectors": vectors}
        shift += float(vectors.sum())
        for noise in range(2):
            row = values[None] + noise
            where = place_of(config=[config], noise=[noise])
            wanted["first", where] = {"current": row[:, :4], "total": row.sum(axis=1)}
    for config in "xy":
        state = np.zeros(6)
        for step in range(STEPS):
            state = np.cos(state + step)
        wanted["steps", place_of(config=[config])] = {"values": state}
    all_rows = np.concatenate(total)
    wanted["mean", "{}"] = {"mean": all_rows.mean(axis=0) + shift, "count": np.array(len(all_rows))}
    return wanted


def place_of(**coordinates: list[Any]) -> str:
    """The coordinates of a chunk as text, in one order."""
    return json.dumps(dict(sorted(coordinates.items())))
