"""Choice of a cluster from what a person writes (`--cluster cuda`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.running.clusters import Cluster
from stages.errors import InputError, suggestion

KINDS = ("local", "cuda", "slurm")


def choose(name: str, **options: Any) -> Cluster:
    """The cluster of that name with its options; anything with `://` and any file is an existing cluster's.

    Raises:
        InputError: no such cluster.
    """
    if "://" in name or Path(name).is_file():
        from pipeline.running.clusters.address import Address

        return Address(name, **options)
    if name == "local":
        from pipeline.running.clusters.local import Local

        return Local(**options)
    if name == "cuda":
        from pipeline.running.clusters.cuda import Cuda

        return Cuda(**options)
    if name == "slurm":
        from pipeline.running.clusters.slurm import Slurm

        return Slurm(**options)
    raise InputError(
        f"no cluster {name!r}{suggestion(name, KINDS)} "
        "(a cluster that runs already: tcp://host:port or the path of its scheduler file)"
    )
