"""Who may talk to a run's scheduler and workers: those with its certificates."""

from __future__ import annotations

import pytest
from distributed import Client

from pipeline.running.clusters import Demand
from pipeline.running.clusters.local import Local
from pipeline.running.clusters.slurm import Slurm


def test_strangers_reach_neither_scheduler_nor_workers() -> None:
    with Local(workers=1).open(Demand(1, 0)) as client:
        scheduler = client.scheduler.address
        (worker,) = client.scheduler_info()["workers"]
        for address in (scheduler, worker):
            assert address.startswith("tls://127.0.0.1:")
            for plain in (address, address.replace("tls", "tcp")):
                with pytest.raises(
                    (OSError, ValueError, TypeError, RuntimeError, AssertionError)
                ):  # Dask's, all
                    Client(plain, timeout=1, set_as_default=False)
        assert client.submit(sum, [1, 2]).result() == 3
        assert client.dashboard_link.startswith("http://127.0.0.1:")


def test_jobs_of_slurm_get_certificates() -> None:
    options = Slurm().options()
    assert options["security"] is True
    assert options["scheduler_options"]["dashboard_address"].startswith("127.0.0.1")
