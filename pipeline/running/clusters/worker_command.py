"""Command lines that start workers in a job or on a host."""

from __future__ import annotations

from pipeline.running.clusters.local import worker_environment
from pipeline.running.clusters.site import Site
from pipeline.running.dashboard import HOST

SILENT_WORKER = "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES"
"""Of a worker's web server, which listens whether it has something to say or not."""

WORKER_ARGUMENTS = (
    *("--nthreads", "1", "--resources", "device=1", "--memory-limit", "0"),
    *("--no-dashboard", "--dashboard-address", f"{HOST}:0"),
)


def exports(site: Site) -> list[str]:
    """Lines of a shell that set the environment of a job's or host's workers; what is written goes last."""
    variables = worker_environment(max(1, (site.cores or 1) // site.each), site.backend)
    ours = {**variables, SILENT_WORKER: "[]"}
    return [*(f"export {name}={value}" for name, value in ours.items()), *site.exports]


def one_per_gpu(command: str, name: str, gpus: int) -> str:
    """A line of a shell that starts a worker for each GPU, which sees it alone, and waits for all.

    name: beginning of the workers' names, as a shell reads it.
    The GPUs are those that the batch system lets the job see, or the first ones where it says nothing.
    """
    numbers = range(gpus)
    visible = ",".join(map(str, numbers))
    begin = (
        f"set -- {' '.join(map(str, numbers))}; IFS=,; for device in ${{CUDA_VISIBLE_DEVICES:-{visible}}}; do"
    )
    alone = f'unset IFS; [ $# -gt 0 ] || break; CUDA_VISIBLE_DEVICES="$device" {command}'
    return f"{begin} {alone} --name {name}-$1 & shift; done; wait"
