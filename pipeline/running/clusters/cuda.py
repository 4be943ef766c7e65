"""One worker per GPU of this machine, by dask-cuda."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dask.system import CPU_COUNT
from distributed import Client

from pipeline.running.clusters import Demand, Devices
from pipeline.running.clusters.local import started, worker_environment
from pipeline.running.dashboard import Dashboard
from stages.errors import InputError

INSTALL = "pip install 'quarkline[cuda13]' (or [cuda12])"


@dataclass(frozen=True)
class Cuda:
    """A worker per GPU; each sees its own as device 0.

    Args:
        workers: number of GPUs to use, all visible ones by default; no more than have work.
        dashboard_port: where the dashboard listens on 127.0.0.1, any free port by default.
        gpu_memory: bytes of each GPU instead of what this machine's have, as for plans where there are none.
    """

    workers: int | None = None
    backend: str = "cuda"
    dashboard_port: int = 0
    gpu_memory: int | None = None

    @property
    def memory_limit(self) -> None:
        """None: what is projected is the host's and the GPU's memory together."""

    @property
    def queued(self) -> bool:
        """False: its workers are processes of this machine."""
        return False

    @property
    def devices(self) -> Devices | None:
        """GPUs of this machine, or with the memory that is written down; None where there is neither.

        Asking takes no memory of a GPU.
        """
        try:
            count = _device_count()
        except InputError:
            return Devices(self.workers or 1, self.gpu_memory) if self.gpu_memory else None
        if self.gpu_memory:
            return Devices(self.workers or count, self.gpu_memory)
        from cupy.cuda.runtime import getDeviceProperties

        memory = min(int(getDeviceProperties(number)["totalGlobalMem"]) for number in range(count))
        return Devices(self.workers or count, memory)

    @contextmanager
    def open(self, demand: Demand) -> Iterator[Client]:
        """Start a worker per GPU, and end them with the block."""
        cluster = _cluster_class()
        devices = _device_count()
        wanted = devices if self.workers is None else self.workers
        if not 1 <= wanted <= devices:
            raise InputError(f"workers={wanted}, but this machine has {devices} GPUs, one worker each")
        workers = min(wanted, demand.of_use)
        environment = worker_environment(max(1, CPU_COUNT // workers), self.backend)
        options = {"n_workers": workers, "threads_per_worker": 1, "resources": {"device": 1}}
        no_spilling = {"device_memory_limit": 0}
        dashboard = Dashboard(self.dashboard_port)
        with started(cluster, {**options, **no_spilling}, environment, demand, dashboard) as client:
            yield client


def _cluster_class() -> Any:
    try:
        from dask_cuda import LocalCUDACluster
    except ImportError as error:
        raise InputError(f"the cuda cluster needs dask-cuda ({error}): {INSTALL}") from error
    return LocalCUDACluster


def _device_count() -> int:
    try:
        import cupy
    except ImportError as error:
        raise InputError(f"the cuda cluster needs CuPy ({error}): {INSTALL}") from error
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise InputError(f"no usable GPU on this machine ({error}): use the local cluster") from error
