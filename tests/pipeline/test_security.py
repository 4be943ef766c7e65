"""Who may talk to a run's scheduler and workers: those with its certificates."""

from __future__ import annotations

import asyncio

import pytest
from distributed.core import rpc

from pipeline.running.clusters import Demand
from pipeline.running.clusters.local import Local
from pipeline.running.clusters.slurm import Slurm


async def answer(address: str) -> object:
    """What a stranger gets who asks for the identity of what listens there.

    Not by a Client: one that fails to connect closes itself when it is collected, which waits for ever
    where that happens while the next one starts its event loop.
    """
    async with rpc(address, timeout=1) as stranger:
        return await asyncio.wait_for(stranger.identity(), 2)


def test_strangers_reach_neither_scheduler_nor_workers() -> None:
    with Local(workers=1).open(Demand(1, 0)) as client:
        scheduler = client.scheduler.address
        (worker,) = client.scheduler_info()["workers"]
        for address in (scheduler, worker):
            assert address.startswith("tls://127.0.0.1:")
            with pytest.raises((TypeError, RuntimeError)):  # no certificate to show
                asyncio.run(answer(address))
            with pytest.raises(OSError):  # not in clear text either
                asyncio.run(answer(address.replace("tls", "tcp")))
        assert client.submit(sum, [1, 2]).result() == 3
        assert client.dashboard_link.startswith("http://127.0.0.1:")


def test_jobs_of_slurm_get_certificates() -> None:
    options = Slurm().options()
    assert options["security"] is True
    assert options["scheduler_options"]["dashboard_address"].startswith("127.0.0.1")
