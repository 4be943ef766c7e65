"""A cluster that already runs, given by its scheduler's address or scheduler file. It is left running."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pipeline.running.clusters import Demand
from pipeline.running.clusters.remote import Remote
from pipeline.store.plain_files import TEXT_BYTES, content_of
from stages.base.errors import InputError

if TYPE_CHECKING:
    from distributed import Client

NETWORKS = ("tcp", "tls", "ucx", "ws", "wss")
"""Protocols whose addresses have a port."""
TIMEOUT = 10.0
"""Seconds to wait for the scheduler to answer."""


@dataclass(frozen=True)
class Address(Remote):
    """Workers that somebody else started, one task thread each, with this package and the store in reach.

    With backend cuda they have GPUs, and offer the resource `device=1`.
    """

    def __post_init__(self) -> None:
        """Raise InputError where nothing can be meant."""
        if "://" in self._where:
            _check_port(self._where)
        else:
            _check_file(Path(self._where))

    @property
    def _where(self) -> str:
        return self.site.where or ""

    @contextmanager
    def open(self, demand: Demand) -> Iterator[Client]:
        """Join the cluster; it stays when the run leaves."""
        logging.getLogger("distributed.client").addFilter(_not_of_reconnecting)
        with self._connect() as client:
            yield client

    def _connect(self) -> Client:
        from distributed import Client

        scheduler = {"address" if "://" in self._where else "scheduler_file": self._where}
        try:
            return Client(**scheduler, timeout=TIMEOUT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"no Dask scheduler answers at {self._where}: {error}") from error


def _check_port(address: str) -> None:
    """Raise InputError for an address of a network that has no port."""
    parts = urlsplit(address)
    try:
        reachable = parts.scheme not in NETWORKS or parts.port
    except ValueError:  # a port beyond 65535, or none in digits
        reachable = False
    if not reachable:
        raise InputError(f"cluster {address!r} has no port of 1 to 65535: write it as tcp://host:8786")


def _check_file(path: Path) -> None:
    """Raise InputError for what is no file that a Dask scheduler has written."""
    if not path.is_file():
        raise InputError(f"cluster {str(path)!r} is neither an address (tcp://host:port) nor a file")
    try:
        content = json.loads(content_of(path, TEXT_BYTES))
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict) or not isinstance(content.get("address"), str):
        raise InputError(
            f"cluster {str(path)!r} is no scheduler file: give the one that "
            "`dask scheduler --scheduler-file` writes, or tcp://host:port"
        )


def _not_of_reconnecting(record: logging.LogRecord) -> bool:
    """False for the traceback of a client that gives up a lost scheduler, which the run says in a line."""
    from asyncio import CancelledError

    return not (record.exc_info and isinstance(record.exc_info[1], CancelledError))
