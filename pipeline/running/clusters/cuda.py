"""A worker for each GPU of this machine, or for several, by dask-cuda."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.declare.text import counted
from pipeline.running.clusters import Cluster, Demand, Devices
from pipeline.running.clusters.local import started, worker_environment
from stages.base.errors import InputError
from stages.base.gpus import INSTALL, check_sharing, imported_cupy

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True)
class Cuda(Cluster):
    """A worker for each GPU, or for several that share what it computes on; each sees its own first.

    Args:
        workers: number of them, as many as own all visible GPUs by default; no more than have work.
        gpu_memory: bytes of each GPU instead of what this machine's have, as for plans where there are none.
        gpus_per_worker: GPUs of each, a divisor of this machine's number of them.
    """

    workers: int | None = None
    backend: str = "cuda"
    gpu_memory: int | None = None
    gpus_per_worker: int = 1

    @property
    def devices(self) -> Devices | None:
        """GPUs of this machine, or with the memory that is written down; None where there is neither.

        Asking takes no memory of a GPU. Raises InputError where workers cannot have so many GPUs each.
        """
        each = self.gpus_per_worker
        try:
            count = _device_count()
        except InputError:
            written = (self.workers or 1) * each
            return Devices(written, self.gpu_memory, each) if self.gpu_memory else None
        together, count = count, self._workers_of(count) * each
        if self.gpu_memory:
            return Devices(count, self.gpu_memory, each, together)
        from cupy.cuda.runtime import getDeviceProperties

        memory = min(int(getDeviceProperties(number)["totalGlobalMem"]) for number in range(count))
        return Devices(count, memory, each, together)

    def _workers_of(self, devices: int) -> int:
        """Workers that a machine with so many GPUs holds. Raises InputError where it cannot."""
        each = self.gpus_per_worker
        if devices % each:
            divisors = [str(number) for number in range(1, devices + 1) if devices % number == 0]
            raise InputError(
                f"gpus_per_worker={each} does not divide the {counted(devices, 'GPU')} of this machine: take "
                f"{' or '.join(divisors)}, or show it others (CUDA_VISIBLE_DEVICES)"
            )
        if each > 1:
            for first in range(0, devices, each):
                check_sharing(tuple(range(first, first + each)))
        most = devices // each
        wanted = most if self.workers is None else self.workers
        if not 1 <= wanted <= most:
            own = "one worker each" if each == 1 else f"{counted(most, 'worker')} of {each} GPUs"
            raise InputError(
                f"workers={wanted}, but this machine has {counted(devices, 'GPU')}, {own}: take "
                f"{f'1 to {most} workers' if most > 1 else 'one worker'}"
            )
        return wanted

    @contextmanager
    def open(self, demand: Demand) -> Iterator[Client]:
        """Start the workers, and end them with the block."""
        from dask.system import CPU_COUNT

        devices = _device_count()
        cluster = _cluster_class()
        workers, each = min(self._workers_of(devices), demand.of_use), self.gpus_per_worker
        environment = worker_environment(max(1, CPU_COUNT // workers), self.backend, each)
        options = {"n_workers": workers, "threads_per_worker": 1, "resources": {"device": 1}}
        no_spilling = {"device_memory_limit": 0}
        if each > 1:
            groups = _groups(devices, each)
            cluster, options["CUDA_VISIBLE_DEVICES"] = grouped(cluster, groups), list(groups)
        with started(cluster, {**options, **no_spilling}, environment, demand) as client:
            yield client


def _cluster_class() -> Any:
    try:
        from dask_cuda import LocalCUDACluster
    except ImportError as error:
        raise InputError(f"the cuda cluster needs dask-cuda ({error}): {INSTALL}") from error
    return LocalCUDACluster


def grouped(base: Any, groups: Mapping[str, str]) -> Any:
    """A class of clusters made of dask-cuda's, each worker of which sees GPUs of its own alone.

    groups: what each sees, by its first GPU, as CUDA_VISIBLE_DEVICES names them.
    """

    def new_worker_spec(cluster: Any) -> dict[Any, Any]:
        spec: dict[Any, Any] = base.new_worker_spec(cluster)
        for first, worker in spec.items():
            worker["options"]["env"]["CUDA_VISIBLE_DEVICES"] = groups[str(first)]
        return spec

    return type("Grouped", (base,), {"new_worker_spec": new_worker_spec})


def _groups(devices: int, each: int) -> dict[str, str]:
    """The visible GPUs, by the first of those that share a worker."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in visible.split(",")] if visible else list(map(str, range(devices)))
    names = names[:devices]  # CUDA ignores what follows the first that is not there
    return {names[at]: ",".join(names[at : at + each]) for at in range(0, devices, each)}


def _device_count() -> int:
    cupy = imported_cupy()
    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise InputError(f"no usable GPU on this machine ({error}): use the local cluster") from error
