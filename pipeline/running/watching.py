"""Pages of a run for a person who looks on: its scheduler serves them, on this machine alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol

import dask
from distributed import Scheduler, SchedulerPlugin

from pipeline.running.event_log import ADDRESS
from pipeline.running.limits import HOST
from pipeline.store.store import Store

LINK = "distributed.dashboard.link"
ROUTES = "distributed.scheduler.http.routes"
WORKER_ROUTES = "distributed.worker.http.routes"


class Pages(Protocol):
    """Pages of one run; their port is taken from the beginning."""

    @property
    def link(self) -> str:
        """The address of the first page."""

    def serve_beside(self, scheduler: Scheduler) -> None:
        """Take the place of this scheduler's web server; nothing happens once they are closed."""

    def close(self) -> None:
        """Give the port back, if no scheduler did."""


@contextmanager
def kept_address(folder: Path, link: str) -> Iterator[Path | None]:
    """A file of mode 600 with an address that holds a secret, which goes with the block.

    None where there is no address, or the file system lets others read the file.
    """
    path = folder / ADDRESS
    kept = None
    if link:
        path.unlink(missing_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            if not os.fstat(handle).st_mode & 0o077:
                kept = path
                file.write(f"{link}\n")
    try:
        yield kept
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


Watcher = Callable[[Store], Pages]
"""Opens the pages of a run into a store. Raises InputError where their port is not to be had."""


class _Serving(SchedulerPlugin):
    """Plugin of the scheduler that has it serve pages."""

    name = "quarkline-pages"

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def start(self, scheduler: Scheduler) -> None:
        """Serve them; a run goes on without."""
        try:
            self._pages.serve_beside(scheduler)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            print(f"warning: there is no dashboard ({why}); the run goes on", file=sys.stderr)


@contextmanager
def watched(pages: Callable[[], Pages] | None) -> Iterator[dict[str, Any]]:
    """Options of a scheduler with these pages in the place of Dask's own, which all users may read.

    To be started within the block, in which Dask's settings have the web servers of workers serve nothing.
    """
    with closing(pages()) if pages else nullcontext() as opened:
        settings = {LINK: opened.link if opened else "", ROUTES: [], WORKER_ROUTES: []}
        plugins = [_Serving(opened)] if opened else []
        with dask.config.set(settings):
            yield {"dashboard": False, "dashboard_address": f"{HOST}:0", "plugins": plugins}
