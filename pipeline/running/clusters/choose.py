"""Choice of a cluster: from what a person writes (`cuda`), or from a cluster's section."""

from __future__ import annotations

from pathlib import Path

from pipeline.batch import KINDS as BATCH_KINDS
from pipeline.running.clusters import Cluster
from pipeline.running.clusters.address import Address
from pipeline.running.clusters.cuda import Cuda
from pipeline.running.clusters.jobqueue import JobQueue
from pipeline.running.clusters.local import Local
from pipeline.running.clusters.section import NAMED, ClusterSection
from stages.base.errors import InputError, suggestion


def choose(name: str, **options: object) -> Cluster:
    """The cluster of that name with its options; anything with `://` and any file is an existing cluster's.

    Raises:
        InputError: no such cluster.
    """
    return cluster_of(ClusterSection.model_validate({**named(name), **options}))


def named(name: str, others: str = "") -> dict[str, str]:
    """Keys of the section that a name stands for; others: more that a name could be, for who mistypes one.

    Raises:
        InputError: it stands for none.
    """
    if "://" in name or Path(name).is_file():
        return {"kind": "address", "where": name}
    if name in NAMED:
        return {"kind": name}
    raise InputError(
        f"no cluster {name!r}{suggestion(name, NAMED)} (a cluster that runs already: tcp://host:port or the "
        f"path of its scheduler file{others})"
    )


def cluster_of(site: ClusterSection) -> Cluster:
    """The cluster of a section. Raises InputError for an address or file where nothing can be meant."""
    workers = site.workers.max if site.workers else None
    if site.kind in BATCH_KINDS:
        return JobQueue(site)
    if site.kind == "local":
        return Local(workers)
    if site.kind == "cuda":
        return Cuda(workers, gpu_memory=site.gpu_memory, gpus_per_worker=site.gpus_per_worker)
    if site.kind == "ssh":
        from pipeline.running.clusters.hosts import Hosts  # made of Dask's classes, which take half a second

        return Hosts(site)
    return Address(site)
