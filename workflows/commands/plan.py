"""`quarkline plan`: what would run, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from workflows.commands.options import (
    ClusterOption,
    GpusPerWorkerOption,
    JsonOption,
    SetOption,
    StoreOption,
    WorkflowFile,
    count_option,
    say,
)
from workflows.commands.target import remarks, store_of

if TYPE_CHECKING:
    from pipeline import Plan


def plan(
    workflow: WorkflowFile,
    cluster: ClusterOption = None,
    changes: SetOption = None,
    gpus_per_worker: GpusPerWorkerOption = None,
    store: StoreOption = None,
    forecast: Annotated[
        bool, typer.Option("--forecast", help="What the run would take, with uncertainty, and alternatives.")
    ] = False,
    learn_from: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER",
            help="A store whose records the forecast learns from, too; may be given several times.",
        ),
    ] = None,
    pilot: Annotated[
        bool,
        typer.Option(
            "--pilot", help="Compute the first chunks of what there are no records of, for the forecast."
        ),
    ] = False,
    workers: Annotated[
        int | None, count_option("Workers that are forecast.", "as many as `run` would start")
    ] = None,
    workers_per_node: Annotated[
        int | None, count_option("Workers on a node, for node-hours.", "all, or the GPUs of this machine")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show what a run would compute and why, what is in the store already, and what it would take.

    Reads files and the store, computes nothing but a pilot, if one is asked for. Why: new, extended,
    unfinished, or which parameter, file or version changed. Of a file with a target: what each round found,
    and what the next one would do.

    With --forecast: node-hours, wall time, memory, bytes, files and energy of what is missing, from the
    records of earlier chunks of any size; what other solvers, numbers of vectors and workers would take; and
    a page for a proposal, in the report's folder. Where there are no records, times are those of a machine as
    it is expected, and may be off by factors: with --pilot the first chunks of each node are computed before,
    one for each worker, on this machine or the cluster's, into the store, where the run finds them.

    Example: quarkline plan workflows/g2_disconnected.yaml

    Example: quarkline plan big.yaml --forecast --learn-from small-store --workers 8

    Example: quarkline plan big.yaml --forecast --pilot --cluster cuda
    """
    from pipeline import InputError, explain
    from pipeline.running.clusters.choose import cluster_of
    from pipeline.running.footprint import device_terms
    from pipeline.running.gpu_shares import check_gpus_per_worker, gpus_advice
    from pipeline.running.shortage import device_projection, shortage
    from workflows.catalogue import load_project
    from workflows.cluster_choice import chosen_site
    from workflows.rounds import visited

    project = load_project(workflow)
    results = store_of(project, workflow, store)
    chosen = cluster_of(chosen_site(workflow, cluster, changes or (), gpus_per_worker))
    rounds = list(visited(project, results, chosen.backend))
    planned, steps = rounds[-1].plan, [each.step.text for each in rounds if each.step]
    if pilot and not forecast:
        raise InputError("--pilot is for forecasts: give --forecast, too")
    if forecast:
        from workflows.commands.forecast import Wish, compute_pilot, show

        wish = Wish(chosen, workers, workers_per_node, tuple(learn_from or ()))
        if pilot and compute_pilot(planned, results, wish, quiet=json):
            rounds = list(visited(project, results, chosen.backend))
        show(rounds[-1].plan, rounds[-1].project, results, wish, json)
        return
    check_gpus_per_worker(planned, chosen)
    short, advice = shortage(planned, chosen), gpus_advice(planned, chosen)
    warnings = [*project.warnings, *remarks(planned, project, workflow, store)]
    if json:
        from workflows.outputs.campaigns import DeviceTerm, GpusPerWorker, PlanOutput

        on_devices = chosen.devices or chosen.backend == "cuda"
        terms = device_terms(planned, chosen.devices, chosen.gpus_per_worker) if on_devices else []
        PlanOutput(
            store=results.path,
            **as_dict(planned),
            device_memory_bytes=sum(term.nbytes for term in terms) if on_devices else None,
            device_terms=[DeviceTerm(node=t.node, term=t.name, bytes=t.nbytes) for t in terms],
            gpus_per_worker=GpusPerWorker(
                asked=chosen.gpus_per_worker,
                least=advice.least if advice else None,
                fastest=advice.fastest if advice else None,
            ),
            rounds=steps,
            warning=short.text if short else None,
            remedies=[dict(each) for each in short.remedies] if short else [],
            warnings=warnings,
        ).print()
    else:
        for step in steps:
            say(step)
        say(explain(planned))
        for text in (device_projection(planned, chosen), advice.text if advice else ""):
            if text:
                say(text)
        for warning in (*([short.text] if short else []), *warnings):
            say(f"warning: {warning}")


def as_dict(plan: Plan) -> dict[str, Any]:
    """A plan in JSON's types."""
    return {
        "workflow": plan.workflow,
        "backend": plan.backend,
        "chunks": len(plan.chunks),
        "missing": [
            {
                "node": chunk.node.name,
                "stage": chunk.node.stage.name,
                "key": chunk.key,
                "coordinates": {dim: list(values) for dim, values in chunk.coordinates.items()},
                "reason": plan.reasons[chunk.key].kind,
                "detail": plan.reasons[chunk.key].detail,
            }
            for chunk in plan.missing
        ],
        "memory_bytes": plan.memory,
        "stored_bytes": plan.stored,
        "seconds": plan.seconds,
    }
