"""Choice of a cluster: from what a person writes (`cuda`), or from a cluster's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.running.clusters import Cluster
from pipeline.running.clusters.batch import KINDS as BATCH_KINDS
from pipeline.running.clusters.site import NAMED, Site, Workers
from stages.base.errors import InputError, suggestion


def choose(name: str, **options: Any) -> Cluster:
    """The cluster of that name with its options; anything with `://` and any file is an existing cluster's.

    Raises:
        InputError: no such cluster.
    """
    if "://" in name or Path(name).is_file():
        return cluster_of(Site("address", where=name, **options))
    if name in NAMED:
        number = options.pop("workers", None)
        return cluster_of(Site(name, workers=number and Workers(number, number), **options))
    raise InputError(
        f"no cluster {name!r}{suggestion(name, NAMED)} "
        "(a cluster that runs already: tcp://host:port or the path of its scheduler file)"
    )


def cluster_of(site: Site) -> Cluster:
    """The cluster of a configuration. Raises InputError for an address or file where nothing can be meant."""
    if site.kind == "address":
        from pipeline.running.clusters.address import Address

        return Address(site.where, site.backend, site.gpu_memory, site.gpus_per_worker)
    workers = site.workers.max if site.workers else None
    if site.kind == "local":
        from pipeline.running.clusters.local import Local

        return Local(workers)
    if site.kind == "cuda":
        from pipeline.running.clusters.cuda import Cuda

        return Cuda(
            workers,
            gpu_memory=site.gpu_memory,
            gpus_per_worker=site.gpus_per_worker,
        )
    if site.kind in BATCH_KINDS:
        from pipeline.running.clusters.jobqueue import JobQueue

        return JobQueue(site)
    from pipeline.running.clusters.hosts import Hosts

    return Hosts(site)
