"""`quarkline plan --forecast`: what a run would take, as text, JSON and a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dask.system import CPU_COUNT

from pipeline import Plan, Store, plan, run
from pipeline.declare.text import counted
from pipeline.planning.plan import pilot
from pipeline.reading.forecast.forecast import Forecast, RunCost, Setting, forecast, run_overheads
from pipeline.reading.forecast.kept import keep
from pipeline.reading.forecast.model import Model
from pipeline.reading.forecast.page import learned_from, sections, totals
from pipeline.reading.forecast.samples import Machine, samples
from pipeline.reading.report import table_text, write_report
from pipeline.running.clusters import Cluster, Demand
from pipeline.running.clusters.local import Local, default_workers
from pipeline.running.graph import plan_tasks, widest_level
from pipeline.store.provenance import processor
from workflows.display import RunDisplay
from workflows.documents import Document
from workflows.publishing import writing_into
from workflows.rounds import Rounds
from workflows.shared.definition import Project
from workflows.terminal import say


@dataclass(frozen=True)
class ForecastOutput(Forecast):
    """Cost of a run, by node and in all, and of its alternatives."""

    workers: list[RunCost]
    """The same with other numbers of workers."""
    alternatives: list[RunCost]
    unknown: list[str]
    """Nodes of which there are no records on their machine: their times are expectations."""
    page: Path


@dataclass(frozen=True)
class Wish:
    """Cluster and workers that a forecast is for, and stores that it learns from beside the workflow's."""

    cluster: Cluster
    workers: int | None
    per_node: int | None
    learn_from: tuple[Path, ...]

    def stores(self, store: Store) -> list[Store]:
        """All stores whose records are read."""
        return [store, *map(Store.existing, self.learn_from)]

    def setting(self, plan: Plan, model: Model) -> Setting:
        """Workers as asked for, or as a run would start; machines as of records, or as this one is."""
        devices = self.cluster.devices
        local = isinstance(self.cluster, Local)
        demand = Demand(widest_level(plan_tasks(plan)), plan.memory)
        if self.workers:
            count = self.workers
        elif local:
            count = default_workers(CPU_COUNT, demand)
        else:
            count = devices.workers if devices else 1
        machines = {"cpu": _processor(model, max(1, CPU_COUNT // count) if local else None)}
        if self.cluster.backend == "cuda":
            machines["cuda"] = _gpu(model, self.cluster.gpus_per_worker)
        here = devices.workers if devices else count
        return Setting(count, machines, self.per_node or max(1, here))


DOCUMENT = Document("forecast", ForecastOutput)


def forecast_round(project: Project, store: Store, wish: Wish, *, with_pilot: bool, json: bool) -> None:
    """Forecast the round that the store is in; with a pilot, the one that it is in after that."""
    last = Rounds(project, store, wish.cluster.backend)
    if with_pilot and compute_pilot(last.plan, store, wish, quiet=json):
        last = Rounds(project, store, wish.cluster.backend)
    show(last.plan, last.project, store, wish, json)


def compute_pilot(planned: Plan, store: Store, wish: Wish, *, quiet: bool) -> bool:
    """Compute the first chunks of what there are no records of; False where nothing is to be computed.

    Chunks that fail are told, and the forecast does without them.
    """
    model = Model(samples(wish.stores(store)))
    setting = wish.setting(planned, model)
    first = pilot(planned, _known(planned, model, setting), setting.workers)
    if not first.missing:
        say("pilot: of all that can begin there are records", err=True)
        return False
    nodes = ", ".join(dict.fromkeys(chunk.node.name for chunk in first.missing))
    say(f"pilot: {counted(len(first.missing), 'chunk')} of {nodes}, which the run will find done", err=True)
    with RunDisplay(quiet=quiet) as display:
        outcome = run(first, store, cluster=_with_workers(wish.cluster, setting.workers), listener=display)
    for failure in outcome.failures:
        say(f"pilot: {failure}", err=True)
    if outcome.stopped:
        say(f"pilot: ended by {outcome.stopped}; the forecast is from what it has done", err=True)
    return True


def _with_workers(cluster: Cluster, workers: int) -> Cluster:
    """The cluster with the workers of the forecast: a processor's share its threads."""
    return replace(cluster, workers=workers) if isinstance(cluster, Local) else cluster


def _known(planned: Plan, model: Model, setting: Setting) -> set[str]:
    """Names of stages that there are records of on such a machine as they would run on."""
    machines = setting.machines
    return {
        stage.name
        for stage in {chunk.node.stage.name: chunk.node.stage for chunk in planned.missing}.values()
        if model.knows(stage.name, machines[stage.backend(planned.backend)])
    }


def show(planned: Plan, project: Project, store: Store, wish: Wish, json: bool) -> None:
    """Write the page of a forecast of a plan's missing chunks, and print it, as a document or text."""
    stores = wish.stores(store)
    model, around = Model(samples(stores)), run_overheads(stores, planned.backend)
    setting = wish.setting(planned, model)
    main = forecast(planned, model, setting, around)
    team = [forecast(planned, model, each, around).total for each in _teams(setting)]
    team = [replace(cost, label=f"{cost.workers} workers") for cost in team]
    others = [each.total for each in _alternatives(planned, project, store, model, setting, wish)]
    keep(main, store)
    known = _known(planned, model, setting)
    unknown = list(dict.fromkeys(c.node.name for c in planned.missing if c.node.stage.name not in known))
    shown = sections(main, team, others, unknown)
    with writing_into(project.report / "forecast") as folder:
        head = f"{planned.workflow}: {len(planned.missing)} chunks to compute"
        page = write_report(folder, f"Forecast: {project.title}", head, shown)
    if json:
        DOCUMENT.print(
            ForecastOutput(**vars(main), workers=team, alternatives=others, unknown=unknown, page=page)
        )
        return
    width = max(len(name) for name, _ in totals(main.total))
    say("\n".join(f"{name:<{width}}  {value}" for name, value in totals(main.total)))
    say("")
    say(table_text(shown[1].parts[0]))  # type: ignore[arg-type]
    makes_some = bool(unknown and pilot(planned, known, setting.workers).missing)
    say(learned_from(main, unknown, "; --pilot makes some" * makes_some))
    say(f"page: {page}")


def _alternatives(
    planned: Plan, project: Project, store: Store, model: Model, setting: Setting, wish: Wish
) -> Iterator[Forecast]:
    """The same on other machines that there are records of, on a GPU in any case, and the file's variants."""
    stores, backend = wish.stores(store), planned.backend
    around = run_overheads(stores, backend)
    for machine in model.machines():
        if machine.backend == backend and machine not in setting.machines.values():
            on = replace(setting, machines={**setting.machines, backend: machine})
            yield forecast(planned, model, on, around, f"on {machine}")
    if backend == "cpu":
        elsewhere, gpu = plan(project.workflow, store, backend="cuda"), _gpu(model)
        one = Setting(1, {**setting.machines, "cuda": gpu}, 1)
        yield forecast(elsewhere, model, one, run_overheads(stores, "cuda"), f"on one {gpu}")
    for label, workflow in project.variants():
        yield forecast(plan(workflow, store, backend=backend), model, setting, around, label)


def _processor(model: Model, threads: int | None) -> Machine:
    """This machine's processor with so many threads a worker; that of records where workers are elsewhere."""
    known = [machine for machine in model.machines() if machine.backend == "cpu"]
    if threads is None and known:
        return known[0]
    return Machine("cpu", processor(), threads or 1)


def _gpu(model: Model, per_worker: int = 1) -> Machine:
    """The GPUs of a worker: of a kind that there are records of, of as many to a worker if there are."""
    known = [machine for machine in model.machines() if machine.backend == "cuda"]
    alike = [machine for machine in known if machine.gpus == per_worker]
    return (alike or known or [Machine("cuda", "GPU without records")])[0]._replace(number=per_worker)


def _teams(setting: Setting) -> Iterator[Setting]:
    """Half, once, twice and four times the workers."""
    now = setting.workers
    for count in sorted({max(1, now // 2), now, 2 * now, 4 * now}):
        yield replace(setting, workers=count)
