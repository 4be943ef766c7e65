"""A cluster that already runs, given by its scheduler's address or scheduler file. It is left running."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from distributed import Client

from pipeline.running.clusters import Demand
from stages.errors import InputError

TIMEOUT = 10.0
"""Seconds to wait for the scheduler to answer."""


@dataclass(frozen=True)
class Address:
    """Workers that somebody else started, one task thread each, with this package and the store in reach.

    Args:
        where: `tcp://host:port` or the path of a scheduler file.
        backend: 'cuda' if its workers have a GPU each. They must offer the resource `device=1`.
    """

    where: str
    backend: str = "cpu"

    @property
    def memory_limit(self) -> None:
        """None: somebody else chose the machines."""

    @property
    def queued(self) -> bool:
        """False: whoever started the cluster starts its workers."""
        return False

    @property
    def devices(self) -> None:
        """None: GPUs of other machines are not known here."""

    @contextmanager
    def open(self, demand: Demand) -> Iterator[Client]:
        """Join the cluster; it stays when the run leaves."""
        logging.getLogger("distributed.client").addFilter(_not_of_reconnecting)
        with self._connect() as client:
            yield client

    def _connect(self) -> Client:
        by_address = "://" in self.where
        if not by_address and not Path(self.where).is_file():
            raise InputError(f"cluster {self.where!r} is neither an address (tcp://host:port) nor a file")
        try:
            if by_address:
                return Client(self.where, timeout=TIMEOUT, set_as_default=False)
            return Client(scheduler_file=self.where, timeout=TIMEOUT, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"no Dask scheduler answers at {self.where}: {error}") from error


def _not_of_reconnecting(record: logging.LogRecord) -> bool:
    """False for the traceback of a client that gives up a lost scheduler, which the run says in a line."""
    return not (record.exc_info and isinstance(record.exc_info[1], CancelledError))
