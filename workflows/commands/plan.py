"""`quarkline plan`: what would run, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pipeline import InputError, explain
from pipeline.running.clusters import Cluster
from pipeline.running.clusters.choose import cluster_of
from pipeline.running.memory_advice import (
    DeviceTerm,
    check_gpus_per_worker,
    device_projection,
    device_terms,
    gpus_advice,
    shortage,
)
from workflows.cluster_choice import chosen_site, of_results
from workflows.commands.options import (
    ClusterOption,
    GpusPerWorkerOption,
    JsonOption,
    SetOption,
    StoreOption,
    WorkflowFile,
    count_option,
)
from workflows.documents import Document
from workflows.rounds import Rounds
from workflows.stores import project_and_store, remarks
from workflows.terminal import say

ForecastOption = Annotated[
    bool,
    typer.Option("--forecast", help="Estimate the cost of the run and its alternatives."),
]
LearnFromOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FOLDER",
        help="Another store whose records the forecast uses; may be given several times.",
    ),
]
PilotOption = Annotated[
    bool,
    typer.Option("--pilot", help="For the forecast, compute the first chunks of steps that have no records."),
]
WorkersOption = Annotated[
    int | None, count_option("Workers to forecast for.", "as many as `run` would start")
]
PerNodeOption = Annotated[
    int | None,
    count_option("Workers per node, for node-hours.", "all, or the GPUs of this machine"),
]


@dataclass(frozen=True)
class MissingChunk:
    """A chunk that is to be computed, and why."""

    node: str
    stage: str
    key: str
    coordinates: dict[str, list[Any]]
    reason: str
    detail: str


@dataclass(frozen=True)
class GpusPerWorker:
    """GPUs that each worker owns: as asked for, the least on which all fits, and the fastest by a model.

    Both are null where the GPUs are not known, or there is one.
    """

    asked: int
    least: int | None
    fastest: int | None


@dataclass(frozen=True)
class PlanOutput:
    """Work that a run would do; memory and bytes of what is missing, seconds where earlier chunks tell."""

    store: Path
    workflow: str
    backend: str
    chunks: int
    missing: list[MissingChunk]
    memory_bytes: int | None
    stored_bytes: int | None
    seconds: float | None
    device_memory_bytes: int | None
    device_terms: list[DeviceTerm]
    """What these bytes are made of, the largest first."""
    gpus_per_worker: GpusPerWorker
    rounds: list[str]
    warning: str | None
    """What the cluster is short of."""
    remedies: list[dict[str, Any]]
    """Values by key of the parameter file, with each of which the plan fits; null: the key is left out."""
    warnings: list[str]


DOCUMENT = Document("plan", PlanOutput)


def plan(
    workflow: WorkflowFile,
    cluster: ClusterOption = None,
    changes: SetOption = None,
    gpus_per_worker: GpusPerWorkerOption = None,
    store: StoreOption = None,
    forecast: ForecastOption = False,
    learn_from: LearnFromOption = None,
    pilot: PilotOption = False,
    workers: WorkersOption = None,
    workers_per_node: PerNodeOption = None,
    json: JsonOption = False,
) -> None:
    """Show what a run would compute and why, what is stored already, and the memory, disk and time it needs.

    It reads files and the store, and computes nothing without --pilot. Reasons are new, extended, unfinished,
    or the parameter, file or version that changed. For a file with a target, it shows what each round found
    and what the next one would do.

    --forecast estimates node-hours, wall time, memory, bytes, files and energy of what is missing, from
    records of earlier chunks (units of work) of any lattice size. It compares other solvers, numbers of
    vectors and workers, and writes a page for a proposal into the report's folder. Without records, times
    may be wrong by large factors. --pilot therefore first computes one chunk of each step per worker, on
    this machine or the cluster's, and stores it for the run.

    Example: quarkline plan workflows/g2_disconnected.yaml

    Example: quarkline plan big.yaml --forecast --learn-from small-store --workers 8

    Example: quarkline plan big.yaml --forecast --pilot --cluster cuda
    """
    project, results = project_and_store(workflow, store, of_results(changes))
    chosen = cluster_of(chosen_site(workflow, cluster, changes, gpus_per_worker))
    if pilot and not forecast:
        raise InputError("--pilot is for forecasts: give --forecast, too")
    if forecast:
        from workflows.commands.forecast import Wish, forecast_round  # with what draws its page: a second

        wish = Wish(chosen, workers, workers_per_node, tuple(learn_from or ()))
        forecast_round(project, results, wish, with_pilot=pilot, json=json)
        return
    rounds = Rounds(project, results, chosen.backend)
    check_gpus_per_worker(rounds.plan, chosen)
    warnings = [*project.warnings, *remarks(rounds.plan, project, workflow, store)]
    if json:
        DOCUMENT.print(_output(rounds, chosen, warnings))
    else:
        say(_text(rounds, chosen, warnings))


def _text(rounds: Rounds, cluster: Cluster, warnings: list[str]) -> str:
    """Lines for people: what the rounds found, what is missing and why, what GPUs hold, and warnings."""
    plan = rounds.plan
    short, advice = shortage(plan, cluster), gpus_advice(plan, cluster)
    devices = [device_projection(plan, cluster), advice.text if advice else ""]
    warned = [f"warning: {warning}" for warning in (*([short.text] if short else []), *warnings)]
    return "\n".join([*(step.text for step in rounds.steps), explain(plan), *filter(None, devices), *warned])


def _output(rounds: Rounds, cluster: Cluster, warnings: list[str]) -> PlanOutput:
    """The same for programs."""
    plan = rounds.plan
    short, advice = shortage(plan, cluster), gpus_advice(plan, cluster)
    on_devices = cluster.devices or cluster.backend == "cuda"
    terms = device_terms(plan, cluster.devices, cluster.gpus_per_worker) if on_devices else []
    missing = [
        MissingChunk(
            node=chunk.node.name,
            stage=chunk.node.stage.name,
            key=chunk.key,
            coordinates={dim: list(values) for dim, values in chunk.coordinates.items()},
            reason=plan.reasons[chunk.key].kind,
            detail=plan.reasons[chunk.key].detail,
        )
        for chunk in plan.missing
    ]
    return PlanOutput(
        store=rounds.store.path,
        workflow=plan.workflow,
        backend=plan.backend,
        chunks=len(plan.chunks),
        missing=missing,
        memory_bytes=plan.memory,
        stored_bytes=plan.stored,
        seconds=plan.seconds,
        device_memory_bytes=sum(term.bytes for term in terms) if on_devices else None,
        device_terms=terms,
        gpus_per_worker=GpusPerWorker(
            asked=cluster.gpus_per_worker,
            least=advice.least if advice else None,
            fastest=advice.fastest if advice else None,
        ),
        rounds=[step.text for step in rounds.steps],
        warning=short.text if short else None,
        remedies=[dict(each) for each in short.remedies] if short else [],
        warnings=warnings,
    )
