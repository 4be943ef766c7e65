"""The document of `quarkline plan --forecast`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from pipeline.reading.forecast.estimate import Estimate
from pipeline.reading.forecast.forecast import Forecast
from workflows.outputs.output import PRINTED, Output


class Range(BaseModel):
    """A positive number, and the standard deviation of its natural logarithm."""

    model_config = PRINTED

    value: float
    sigma: float


class NodeCost(BaseModel):
    """Cost of the missing chunks of a node; memory is of a worker at its peak, bytes."""

    model_config = PRINTED

    node: str
    stage: str
    machine: str
    chunks: int
    seconds: Range
    joules: Range | None
    memory: Range
    device_memory: Range | None
    stored: Range
    files: int


class RunCost(BaseModel):
    """Cost of a whole run: seconds, bytes, joules; null where nothing was ever measured."""

    model_config = PRINTED

    label: str
    workers: int
    nodes: int
    """Nodes of the machine that are taken."""
    node_hours: Range
    wall_seconds: Range
    work_seconds: Range
    memory: Range
    device_memory: Range | None
    stored: Range
    files: int
    joules: Range | None
    joules_unknown: list[str]
    """Nodes of the workflow whose energy nothing measured."""


class ForecastOutput(Output):
    """Cost of a run, by node and in all, and of its alternatives."""

    command: ClassVar[str] = "forecast"

    workflow: str
    records: int
    """Records of earlier chunks that it was learned from."""
    total: RunCost
    nodes: list[NodeCost]
    workers: list[RunCost]
    """The same with other numbers of workers."""
    alternatives: list[RunCost]
    unknown: list[str]
    """Nodes of which there are no records on their machine: their times are expectations."""
    page: Path


def forecast_output(
    main: Forecast,
    team: Sequence[Forecast],
    others: Sequence[tuple[str, Forecast]],
    page: Path,
    unknown: Sequence[str],
) -> ForecastOutput:
    """The document of a forecast with its alternatives."""
    nodes = [
        NodeCost(
            node=each.node,
            stage=each.stage,
            machine=each.machine,
            chunks=each.chunks,
            seconds=_range(each.seconds),
            joules=_maybe(each.joules),
            memory=_range(each.memory),
            device_memory=_maybe(each.device_memory),
            stored=_range(each.stored),
            files=each.files,
        )
        for each in main.nodes
    ]
    return ForecastOutput(
        workflow=main.workflow,
        records=main.samples,
        total=_cost("as planned", main),
        nodes=nodes,
        workers=[_cost(f"{each.setting.workers} workers", each) for each in team],
        alternatives=[_cost(label, each) for label, each in others],
        unknown=list(unknown),
        page=page,
    )


def _cost(label: str, forecast: Forecast) -> RunCost:
    return RunCost(
        label=label,
        workers=forecast.setting.workers,
        nodes=forecast.setting.nodes,
        node_hours=_range(forecast.node_hours),
        wall_seconds=_range(forecast.wall),
        work_seconds=_range(forecast.work),
        memory=_range(forecast.memory),
        device_memory=_maybe(forecast.device_memory),
        stored=_range(forecast.stored),
        files=forecast.files,
        joules=_maybe(forecast.joules),
        joules_unknown=list(forecast.unmeasured),
    )


def _range(estimate: Estimate) -> Range:
    return Range(value=estimate.value, sigma=estimate.sigma)


def _maybe(estimate: Estimate | None) -> Range | None:
    return None if estimate is None else _range(estimate)
