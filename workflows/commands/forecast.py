"""`quarkline plan --forecast`: what a run would take, as text, JSON and a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from workflows.commands.options import say

if TYPE_CHECKING:
    from pipeline import Plan, Store
    from pipeline.reading.forecast.forecast import Forecast, Setting
    from pipeline.reading.forecast.model import Model
    from pipeline.reading.forecast.samples import Machine
    from pipeline.running.clusters import Cluster
    from workflows.shared.definition import Project


def show(
    planned: Plan,
    project: Project,
    store: Store,
    cluster: Cluster,
    workers: int | None,
    per_node: int | None,
    learn_from: Sequence[Path],
    json: bool,
) -> None:
    """Print the forecast of a plan's missing chunks, and write its page beside the report."""
    from pipeline import Store, plan
    from pipeline.reading.forecast.forecast import forecast, run_overheads
    from pipeline.reading.forecast.kept import keep
    from pipeline.reading.forecast.model import Model
    from pipeline.reading.forecast.page import sections, totals
    from pipeline.reading.forecast.samples import samples
    from pipeline.reading.report import table_text, write_report
    from workflows.commands.report import writing_into

    stores = [store, *map(Store.existing, learn_from)]
    model, around = Model(samples(stores)), run_overheads(stores, planned.backend)
    setting = setting_of(planned, model, cluster, workers, per_node)
    main = forecast(planned, model, setting, around)
    team = [forecast(planned, model, each, around) for each in _teams(setting, main)]
    others = [
        (f"on {machine}", forecast(planned, model, _on(setting, machine), around))
        for machine in model.machines()
        if machine.backend == planned.backend and machine not in setting.machines.values()
    ]
    for label, workflow in project.variants() if project.variants else ():
        other = plan(workflow, store, backend=planned.backend)
        others.append((label, forecast(other, model, setting, around)))
    keep(main, store)
    shown = sections(main, team, others)
    with writing_into(project.report / "forecast") as folder:
        head = f"{planned.workflow}: {len(planned.missing)} chunks to compute"
        page = write_report(folder, f"Forecast: {project.title}", head, shown)
    if json:
        from workflows.outputs.forecasts import forecast_output

        forecast_output(main, team, others, page).print()
        return
    width = max(len(name) for name, _ in totals(main))
    say("\n".join(f"{name:<{width}}  {value}" for name, value in totals(main)))
    say("")
    say(table_text(shown[1].parts[0]))  # type: ignore[arg-type]
    say(f"page: {page}")


def setting_of(
    plan: Plan, model: Model, cluster: Cluster, workers: int | None, per_node: int | None
) -> Setting:
    """Workers as asked for, or as a run would start; machines as known from records, or as this one is."""
    from dask.system import CPU_COUNT

    from pipeline.reading.forecast.forecast import Setting
    from pipeline.running.clusters import Demand
    from pipeline.running.clusters.local import default_workers
    from pipeline.running.graph import plan_tasks, widest_level

    local = cluster.backend == "cpu" and not cluster.queued
    demand = Demand(widest_level(plan_tasks(plan)), plan.memory)
    if workers:
        count = workers
    elif local:
        count = default_workers(CPU_COUNT, demand)
    else:
        count = cluster.devices.count if cluster.devices else 1
    machines = {"cpu": _processor(model, max(1, CPU_COUNT // count) if local else None)}
    if cluster.backend == "cuda":
        machines["cuda"] = _gpu(model)
    here = cluster.devices.count if cluster.devices else count
    return Setting(count, machines, per_node or max(1, here))


def _processor(model: Model, threads: int | None) -> Machine:
    """This machine's processor with so many threads a worker; that of records where workers are elsewhere."""
    from pipeline.reading.forecast.samples import Machine
    from pipeline.store.provenance import processor

    known = [machine for machine in model.machines() if machine.backend == "cpu"]
    if threads is None and known:
        return known[0]
    return Machine("cpu", f"{processor()}, {threads or 1} threads")


def _gpu(model: Model) -> Machine:
    from pipeline.reading.forecast.samples import Machine

    known = [machine for machine in model.machines() if machine.backend == "cuda"]
    return known[0] if known else Machine("cuda", "a GPU without records")


def _on(setting: Setting, machine: Machine) -> Setting:
    return replace(setting, machines={**setting.machines, machine.backend: machine})


def _teams(setting: Setting, main: Forecast) -> Iterator[Setting]:
    """Half, once, twice and four times the workers."""
    for count in sorted(
        {max(1, setting.workers // 2), setting.workers, 2 * setting.workers, 4 * setting.workers}
    ):
        yield replace(setting, workers=count)
