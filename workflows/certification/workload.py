"""Work whose kernels are compared with their twins: what runs do, on rough links and in shipped workflows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ruamel.yaml import YAML

from pipeline import Plan, Store, plan
from pipeline.running.graph import work_of
from pipeline.worker.events import ChunkState
from pipeline.worker.resident import drop_all
from pipeline.worker.sources import sources_of
from pipeline.worker.task import execute
from pipeline.worker.work import RunContext
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.distillation.eigenvectors import LaplaceSolver
from stages.lqcd.distillation.elementals import elementals
from stages.lqcd.distillation.insertions import Insertions
from stages.lqcd.distillation.projection import sink_projections
from stages.lqcd.estimators.trace import CurrentLinks, LoopTrace
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.gauge.hyp import hyp_links
from stages.lqcd.gauge.stout import stout_links
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.noise.dilution import Dilution, dilute
from stages.lqcd.noise.probing import probed
from stages.lqcd.noise.vectors import KINDS, noise_vectors
from stages.lqcd.solvers.even_odd import EvenOdd
from stages.lqcd.solvers.named import MULTIGRID, POSITIVE, REGULAR, WHOLE_PRECISIONS, Solve
from stages.lqcd.spectroscopy.gammas import DIRAC
from stages.lqcd.spectroscopy.mesons import meson_correlators
from stages.lqcd.spectroscopy.quark_sources import SourcePlace, gaussian_smeared, point_source
from workflows.catalogue import load_project
from workflows.certification.check import DOUBLE, SINGLE, Check, Device, caught
from workflows.certification.fields import random_field, rough_links
from workflows.certification.symmetries import staggered_operator, wilson_operator
from workflows.starters import starter, starter_names

LATTICE = Lattice((4, 2, 4, 6))
WIDTHS, MORE_WIDTHS = (3, 16), (1, 8, 12, 24, 32)
TOLERANCE, MASS = 1e-8, 0.3
MOMENTA = ((0, 0, 0), (1, 0, -2))
AMPLE = 1 << 40
"""Bytes: more than these fields need."""
SMALL = 4
"""Extent in space of the lattice that shipped workflows are computed on."""


def workload(device: Device) -> Iterator[Check]:
    """Do all of it; yields what went wrong."""
    checks: list[Check] = []
    for name, step in (*_steps(device), *(_more_steps(device) if device.full else ())):
        with caught(f"work: {name}", "kernels while it runs", checks):
            step()
    yield from checks


def _steps(device: Device) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "noise", partial(_noise, device)
    yield "heat bath", partial(thermalised, LATTICE, 6.0, 7, "certify", 1, 1, xp=device.xp)
    yield "smearing", partial(_smearing, device)
    yield "distillation and mesons", partial(_contractions, device)
    for width in device.widths(WIDTHS, MORE_WIDTHS):
        for solver in ("block_cgrq", "batched_cg"):
            yield f"HISQ loops by {solver}, N = {width}", partial(_loops, solver, width, device)
    for solver in ("gcr", "bicgstab"):
        yield f"Wilson-clover solves by {solver}", partial(_propagators, solver, device)


def _more_steps(device: Device) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every solver in double and in double-single, and the shipped workflows."""
    for precision in WHOLE_PRECISIONS:
        for solver in POSITIVE:
            yield f"HISQ loops by {solver}, {precision}", partial(_loops, solver, 12, device, precision)
        for solver in (each for each in REGULAR if each != MULTIGRID):
            work = partial(_propagators, solver, device, precision)
            yield f"Wilson-clover solves by {solver}, {precision}", work
    for name in starter_names():
        yield f"workflow {name}", partial(_workflow, name, device)


def _noise(device: Device) -> None:
    for kind in KINDS:
        noise_vectors(LATTICE, ODD, "certify", 5, range(3), kind, xp=device.xp)

    eta = noise_vectors(LATTICE, EVEN, "certify", 5, range(2), "z2", xp=device.xp)
    dilute(eta, Dilution.parse({"displacement": 2}).partition(LATTICE, EVEN), range(4))
    probed(eta, LATTICE, EVEN, range(4))


def _smearing(device: Device) -> None:
    links = device.array(rough_links(61, LATTICE))
    stout_links(links, LATTICE, 0.1, 1)
    hyp_links(links, LATTICE, (0.75, 0.6, 0.3), 1)
    source = point_source(LATTICE, SourcePlace(0, (1, 0, 2)), device.xp)
    gaussian_smeared(source, links, LATTICE, 0, 2.0, 6)


def _contractions(device: Device) -> None:
    """Distillation and mesons, of fields that need no solve."""
    links = device.array(rough_links(69, LATTICE))
    for dtype in (SINGLE, DOUBLE):
        vectors = random_field(73, (LATTICE.time_extent, 2, 16, 3, 5), dtype, device.xp)
        solutions = random_field(71, (2, LATTICE.half_volume, 12, 12), dtype, device.xp)
        sink_projections(vectors, solutions, device.xp, AMPLE)
        elementals(vectors, links, Insertions(LATTICE, MOMENTA, ("", "+x", "+y-x")), device.xp, AMPLE)
    meson_correlators(solutions, LATTICE, SourcePlace(0, (0, 0, 0)), tuple(DIRAC), MOMENTA)
    LaplaceSolver(6).solve(links, LATTICE)


def _loops(solver: str, width: int, device: Device, precision: str = "double-single") -> None:
    dslash = staggered_operator(rough_links(63, LATTICE), LATTICE, DOUBLE, device).dslash
    solve = Solve(solver, TOLERANCE, precision).of_positive()
    trace = LoopTrace(dslash, CurrentLinks(dslash.links), MASS, solve)
    sources = noise_vectors(LATTICE, EVEN, "certify", 9, range(width), "z4", xp=device.xp)
    trace.contract(EVEN, sources)


def _propagators(solver: str, device: Device, precision: str = "double-single") -> None:
    M = wilson_operator(rough_links(65, LATTICE), LATTICE, DOUBLE, device)
    b = random_field(67, (*M.shape, 12), DOUBLE, device.xp)
    EvenOdd(Solve(solver, TOLERANCE, precision).of_regular(), WilsonSchur).solve(M, b)


def _workflow(name: str, device: Device) -> None:
    """All chunks of a shipped workflow for one configuration of a small lattice; also with multigrid."""
    yaml = YAML()
    with TemporaryDirectory() as folder:
        file, store = Path(folder) / "small.yaml", Store(Path(folder) / "store")
        content = yaml.load(starter(name, file)[0])
        heat_bath = content["ensemble"]["heatbath"]
        extents = [SMALL, SMALL, SMALL, heat_bath["extents"][3]]
        heat_bath.update(extents=extents, configurations=1, sweeps=1)
        content.update(store=str(store.path), report=str(Path(folder) / "report"))
        yaml.dump(content, file)
        store.create()
        project = load_project(file)
        cycles = (each for label, each in project.variants() if label.endswith(f"= {MULTIGRID}"))
        for workflow in (project.workflow, *cycles):
            _compute(plan(workflow, store, backend=device.backend), store, device)


def _compute(made: Plan, store: Store, device: Device) -> None:
    """What is missing of a plan, in this process. Raises RuntimeError for a chunk that fails on the device.

    Averages, which call no kernels, may fail: levels of a single configuration can be indefinite.
    """
    sources = sources_of({chunk.node.stage.function for chunk in made.everything})
    context = RunContext(store, "certify", device.backend, AMPLE, sources)
    works = [work_of(chunk, device.backend) for chunk in made.missing]
    ends = execute(works, context, frozenset())
    drop_all()
    for chunk, end in zip(made.missing, ends, strict=True):
        if end.kind is not ChunkState.DONE and chunk.node.stage.resources.device:
            raise RuntimeError(f"{end.node}: {end.error}")
