"""Clusters of other machines: what is written of them, and lines of a shell that start their workers."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.running.clusters import NO_EMPTY_PATH, Cluster, Devices
from pipeline.running.clusters.local import worker_environment
from pipeline.running.clusters.section import ClusterSection
from pipeline.running.limits import HOST

SILENT_WORKER = "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES"
"""Of a worker's web server, which listens whether it has something to say or not."""

WORKER_ARGUMENTS = (
    *("--nthreads", "1", "--resources", "device=1", "--memory-limit", "0"),
    *("--no-dashboard", "--dashboard-address", f"{HOST}:0"),
)


@dataclass(frozen=True)
class Remote(Cluster):
    """Base of clusters of other machines, all that is known of which is what somebody wrote.

    Args:
        site: kind, and what is written of each job, host or worker.
    """

    site: ClusterSection

    @property
    def backend(self) -> str:
        """'cuda' if the workers have GPUs."""
        return self.site.backend

    @property
    def gpus_per_worker(self) -> int:
        """GPUs of each worker."""
        return self.site.gpus_per_worker

    @property
    def devices(self) -> Devices | None:
        """GPUs, where their memory is written down; of one worker where nobody says how many there are."""
        return self.site.devices


def exports(site: ClusterSection) -> list[str]:
    """Lines of a shell that set the environment of a job's or host's workers; what is written goes last."""
    threads = max(1, (site.cores or 1) // site.each)
    variables = worker_environment(threads, site.backend, site.gpus_per_worker)
    ours = {**variables, SILENT_WORKER: "[]"}
    return [*(f"export {name}={value}" for name, value in ours.items()), *site.exports]


def opening(site: ClusterSection) -> list[str]:
    """Lines of a shell before workers start: environment, prologue, and the end, in words, without CuPy."""
    cupy = [f"{site.interpreter} -m stages.base.gpus || exit 1"] if site.backend == "cuda" else []
    return [*exports(site), *(site.prologue or ()), NO_EMPTY_PATH, *cupy]


def workers_of_gpus(command: str, name: str, workers: int, gpus_per_worker: int = 1) -> str:
    """A line of a shell that starts workers, each of which sees GPUs of its own alone, and waits for all.

    name: beginning of the workers' names, as a shell reads it.
    The GPUs are those that the batch system lets the job see, or the first ones where it says nothing.
    """
    visible = ",".join(map(str, range(workers * gpus_per_worker)))
    begin = (
        f"set -- {' '.join(map(str, range(workers)))}; IFS=,; "
        f"for device in ${{CUDA_VISIBLE_DEVICES:-{visible}}}; do unset IFS; [ $# -gt 0 ] || break;"
    )
    several = gpus_per_worker > 1
    devices = "$devices" if several else "$device"
    gather = (
        f' devices="${{devices:+$devices,}}$device"; counted=$((counted + 1)); '
        f"[ $counted -eq {gpus_per_worker} ] || continue;"
    )
    again = "; devices=; counted=0" if several else ""
    start = f'CUDA_VISIBLE_DEVICES="{devices}" {command} --name {name}-$1 & shift{again}; done; wait'
    return f"{'devices=; counted=0; ' if several else ''}{begin}{gather if several else ''} {start}"
