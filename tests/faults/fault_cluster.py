"""A cluster of separate processes, as somebody else starts it: a scheduler, and nannies of a worker each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import fault_driver
import strikes
from distributed import Nanny, Scheduler


def scheduler(address: str) -> int:
    """Serve until killed; the address goes into a file."""
    strikes.enlist("scheduler")

    async def serve() -> None:
        async with Scheduler(host="127.0.0.1", port=0, dashboard=False) as served:
            draft = Path(f"{address}.draft")
            draft.write_text(served.address)
            draft.rename(address)
            await served.finished()

    asyncio.run(serve())
    return 0


def nanny(address: str) -> int:
    """Look after one worker until killed, or until the scheduler is gone."""
    fault_driver.share_imports()
    strikes.enlist("nanny")

    async def serve() -> None:
        options = {"nthreads": 1, "memory_limit": 0, "resources": {"device": 1}, "host": "127.0.0.1"}
        async with Nanny(address, **options) as served:
            await served.finished()

    asyncio.run(serve())
    return 0
