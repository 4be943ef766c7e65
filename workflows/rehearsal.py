"""Kernels of a project, compiled beside its run: what Numba compiles is kept on disk, for any lattice.

While the cluster starts and its workers compute what comes first, a process of its own computes the same
chunks on a tiny lattice, into a folder that is thrown away. Workers then find most kernels on disk, or wait
for the one that is being compiled. No result depends on it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline import Plan, Store
from pipeline import plan as make_plan
from pipeline.running.clusters import Cluster
from pipeline.running.clusters.local import Local, worker_environment
from pipeline.running.graph import plan_tasks, work_of
from pipeline.worker.events import Event
from pipeline.worker.sources import digest_of, sources_of
from pipeline.worker.work import RunContext
from stages.base.user_cache import cache_folder
from stages.lqcd.lattice.geometry import Lattice
from workflows.catalogue import load_project
from workflows.shared.definition import NO_RESULT, Project
from workflows.shared.variants import changed

TINY = 4
"""Sites along x, y and z; there are as many time slices as in the project, where sources have places."""

LEAST_VOLUME = 4096
"""Sites of a lattice on which chunks take longer than the start of a process for their kernels."""

PATIENCE = 600
"""Seconds after which a process ends whose run was killed."""


@contextmanager
def rehearsed(project: Project, plan: Plan, cluster: Cluster) -> Iterator[None]:
    """Have kernels of a plan compiled while the block runs, where that was not done before."""
    large = project.ensemble.lattice.volume >= LEAST_VOLUME and project.parameters.ensemble.heatbath
    source = project.source
    if not (large and source and plan.missing and type(cluster) is Local) or _done(project).exists():
        yield
        return
    process = None
    with suppress(OSError):  # of a machine that has no room for one more: workers compile what they need
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, source.path, *source.changes],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **worker_environment(1, cluster.backend)},
            start_new_session=True,
        )
    try:
        yield
    finally:
        if process:
            process.terminate()
            process.wait()


def tiny(project: Project) -> Project:
    """A project on one configuration of a tiny lattice, which is not thermalised."""
    parameters, heatbath = project.parameters, project.parameters.ensemble.heatbath
    assert heatbath is not None
    extents = (TINY, TINY, TINY, heatbath.extents[3])
    little = {"extents": extents, "configurations": 1, "sweeps": 1}
    for key, value in {**little, "overrelaxation": min(1, heatbath.overrelaxation)}.items():
        parameters = changed(parameters, f"ensemble.heatbath.{key}", value)
    ensemble = replace(project.ensemble, lattice=Lattice(extents), labels=project.ensemble.labels[:1])
    return replace(project, parameters=parameters, ensemble=ensemble)


def rehearse(project: Project) -> list[Event]:
    """Compute a project and throw its results away; returns the ends of its chunks. Raises InputError."""
    from pipeline.worker.task import execute

    with TemporaryDirectory(prefix="quarkline-") as folder:
        store = Store(Path(folder, "store"))
        store.create()
        plan = make_plan(project.workflow, store)
        sources = sources_of(chunk.node.stage.function for chunk in plan.everything)
        context = RunContext(store, "rehearsal", plan.backend, resident_bytes=0, sources=sources)
        tasks = [[work_of(chunk, plan.backend) for chunk in task.chunks] for task in plan_tasks(plan)]
        return [end for works in tasks for end in execute(works, context, frozenset())]


def _done(project: Project) -> Path:
    """The file that says that a project's kernels were compiled here."""
    parameters = tiny(project).parameters.model_dump_json(exclude=NO_RESULT)
    about = (parameters, digest_of(("stages",)), os.environ.get("NUMBA_CACHE_DIR"))
    return cache_folder() / "rehearsals" / sha256(repr(about).encode()).hexdigest()[:16]


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, lambda *_: sys.exit())  # by which the folder is removed
    signal.alarm(PATIENCE)
    asked = load_project(Path(sys.argv[1]), sys.argv[2:])
    rehearse(tiny(asked))
    with suppress(OSError):
        _done(asked).parent.mkdir(parents=True, exist_ok=True)
        _done(asked).touch()
