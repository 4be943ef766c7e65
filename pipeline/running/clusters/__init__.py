"""Clusters that a run's tasks go to: one file per kind, each opening into a client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Client

    from pipeline.running.clusters.jobs import JobList
    from pipeline.running.watching import Pages


class StartInterruptedError(Exception):
    """Error of a cluster whose start took longer than the run may last."""


CONTEXT = 700_000_000
"""Bytes of a GPU that CUDA's context and the compiled kernels take beside all fields, measured on an H200."""

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Environment of workers and jobs: a `random.py` or `stages.py` in the folder where they start is not
imported in the place of Python's or of this package's."""

NO_EMPTY_PATH = """export PYTHONPATH="$(printf %s "${PYTHONPATH-}" | sed 's/::*/:/g; s/^://; s/:$//')\""""
"""Line of a shell for after a prologue: `export PYTHONPATH=/mine:$PYTHONPATH`, where nothing was set before,
leaves an empty entry, by which Python means the folder where it starts."""


@dataclass(frozen=True)
class Demand:
    """Workers and memory that a run needs from a cluster."""

    tasks: int
    """Tasks that could at most run side by side."""
    memory: int
    """Bytes that the largest task needs, 0 if unknown."""
    stopped: Callable[[], bool] = lambda: False
    """True once the run must end: the start of workers is then not waited for."""
    jobs: JobList | None = None
    """Where jobs are written down that outlive a driver which is killed."""
    pages: Callable[[], Pages] | None = None
    """Opens what the scheduler is to serve to who watches the run."""

    @property
    def of_use(self) -> int:
        """The number of workers beyond which some would never have work."""
        return max(1, self.tasks)


@dataclass(frozen=True)
class Devices:
    """GPUs that a run would use."""

    count: int
    memory: int
    """Bytes of the smallest."""
    per_worker: int = 1
    """GPUs of each worker, which share what it computes on."""
    together: int = 0
    """GPUs of one machine, which a worker may own; 0 where that is not known."""

    @property
    def workers(self) -> int:
        """Workers that own them."""
        return max(1, self.count // self.per_worker)


class Cluster(ABC):
    """A kind of cluster with its options."""

    @property
    def backend(self) -> str:
        """'cpu' or 'cuda': where stages run that ask for a device."""
        return "cpu"

    @property
    def memory_limit(self) -> int | None:
        """Bytes that a task alone on its worker's machine may use; None where others watch over them."""
        return None

    @property
    def queued(self) -> bool:
        """True if workers are jobs of a batch system, which may take any time to begin."""
        return False

    @property
    def devices(self) -> Devices | None:
        """GPUs of the cluster; None if there are none or they are not known here."""
        return None

    @property
    def gpus_per_worker(self) -> int:
        """GPUs of each worker, which share what it computes on; 1 for workers without any."""
        return 1

    @abstractmethod
    def open(self, demand: Demand) -> AbstractContextManager[Client]:
        """Start or join the cluster; on leaving, end what was started."""
