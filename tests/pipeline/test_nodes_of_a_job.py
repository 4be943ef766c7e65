"""Workers on all nodes of a job: started by the words of its batch system, known by certificates alone."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
import toy_driver
from executions import Executions

from pipeline import Store, plan, run
from pipeline.running.clusters.hosts import Hosts
from pipeline.running.clusters.section import ClusterSection

HERE = Path(__file__).parent


def test_one_command_starts_the_workers_of_all_nodes() -> None:
    hosts = Hosts(ClusterSection(kind="slurm", gpus=4, cores=32), launcher="srun --overlap --nodes=2")
    shell, option, line = hosts.words("nodes", "tls://h:1", {"--tls-key": "k"})
    assert (shell, option) == ("bash", "-c")
    *start, inner = shlex.split(line)
    assert start == ["exec", "srun", "--overlap", "--nodes=2", "bash", "-c"]
    assert "for device in ${CUDA_VISIBLE_DEVICES:-0,1,2,3}" in inner
    assert 'CUDA_VISIBLE_DEVICES="$device"' in inner and '--name "$(hostname)"-$1 &' in inner
    assert "distributed.cli.dask_worker tls://h:1 --nanny --nthreads 1 --resources device=1" in inner
    by_ssh = Hosts(ClusterSection(kind="ssh", hosts=("a b",))).words("a b", "tls://h:1", {})
    assert by_ssh[0] == "ssh" and by_ssh[-2] == "a b" and by_ssh[-1].endswith("--name 'a b'")


@pytest.mark.slow
def test_a_run_on_a_node(store: Store, executed: Executions) -> None:
    paths = {"PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)])}
    nodes = Hosts(ClusterSection(kind="slurm", processes=2, environment=paths), launcher="env")
    outcome = run(plan(toy_driver.workflow(), store), store, cluster=nodes)
    assert outcome.exit_status == 0, outcome.table()
    assert executed.new()["loops"] == 9
    assert not list(store.path.glob(".runs/*/.certificates*"))
