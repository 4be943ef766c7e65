"""Comparison of a worker's code with its driver's when the worker starts."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

from distributed import WorkerPlugin

from pipeline.store.provenance import host
from pipeline.worker.events import Event, EventKind
from pipeline.worker.sources import Sources, digest_of, were_edited
from pipeline.worker.work import RunContext
from stages.base.errors import InputError


class OtherCodeError(InputError):
    """Error of a worker whose code is not the driver's."""


REMEDY = "start driver and workers again, from one installation, and do not edit it during a run"


def refusal(difference: str) -> OtherCodeError:
    """The error of a worker on this machine; difference: between its code and the driver's."""
    return OtherCodeError(
        f"a worker on {host()} has other code than the driver ({difference}): nothing was computed there; "
        f"{REMEDY}"
    )


def edit_of(sources: Sources) -> str:
    """The error of a driver whose sources were edited since it began; empty if they were not."""
    if not were_edited(sources):
        return ""
    which = ", ".join(sources.names)
    return f"sources of {which} were edited during the run: no worker can be replaced; {REMEDY}"


def check_sources(context: RunContext) -> None:
    """Raise OtherCodeError unless the sources of engine and stages are those that the driver runs."""
    sources = context.sources
    if absent := [name for name in sources.names if name not in sys.modules and find_spec(name) is None]:
        raise refusal(
            f"{', '.join(absent)} cannot be imported there: install it, or name its folder in PYTHONPATH"
        )
    if (found := digest_of(sources.names)) != sources.digest:
        which = ", ".join(sources.names)
        raise refusal(f"sources of {which}: {found[:12]} there, {sources.digest[:12]} in the driver")


class CodeCheck(WorkerPlugin):
    """Plugin of each worker that is there or comes later: one of other code tells the run.

    It does not raise, which Dask would answer with a traceback: tasks compare again, and compute nothing.
    """

    def __init__(self, context: RunContext) -> None:
        self.name = f"quarkline-code-{context.run}"
        self._context = context

    def setup(self, worker: Any) -> None:
        """Compare."""
        try:
            check_sources(self._context)
        except OtherCodeError as error:
            refused = Event(EventKind.REFUSED, error=str(error))
            worker.log_event(self._context.topic, refused.as_dict())
