"""Workers on hosts by ssh: the line that starts them, pinned; a run where a shell here plays `ssh`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import toy_stages as toys

from pipeline import Place, Workflow, plan, run
from pipeline.running.clusters import NO_EMPTY_PATH
from pipeline.running.clusters.hosts import Hosts, command
from pipeline.running.clusters.section import ClusterSection
from pipeline.running.event_log import read_events

FILES = {"ca_file": "/run/ca", "cert": "/run/cert", "key": "/run/key"}
SSH = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
[ "$1" = gone ] && { echo "no route to gone" >&2; exit 255; }
exec sh -c "$2"
"""


def test_line_that_starts_the_workers_of_a_host() -> None:
    asked = {"gpus": 2, "cores": 8, "python": "/opt/python", "interface": "ib0", "environment": {"A": "b c"}}
    prologue, hosts = ("module load cuda",), ("node1",)
    site = ClusterSection(kind="ssh", backend="cuda", hosts=hosts, prologue=prologue, **asked)
    assert command(site, "node1", "tls://10.0.0.1:5", FILES) == (
        f"cd {os.getcwd()}; export NUMBA_NUM_THREADS=4; export OMP_NUM_THREADS=4; "
        "export OPENBLAS_NUM_THREADS=1; export MKL_NUM_THREADS=1; export QUARKLINE_GPUS_PER_WORKER=1; "
        "export PYTHONSAFEPATH=1; export DASK_DISTRIBUTED__WORKER__HTTP__ROUTES=[]; export A='b c'; "
        f"module load cuda; {NO_EMPTY_PATH}; /opt/python -m stages.base.gpus || exit 1; set -- 0 1; "
        "IFS=,; for device in ${CUDA_VISIBLE_DEVICES:-0,1}; do unset IFS; [ $# -gt 0 ] || break; "
        'CUDA_VISIBLE_DEVICES="$device" /opt/python -m distributed.cli.dask_worker tls://10.0.0.1:5 --nanny '
        "--nthreads 1 --resources device=1 --memory-limit 0 --no-dashboard --dashboard-address 127.0.0.1:0 "
        "--death-timeout 60 --interface ib0 --tls-ca-file /run/ca --tls-cert /run/cert "
        "--tls-key /run/key --name node1-$1 & shift; done; wait"
    )


@pytest.mark.slow
def test_a_run_on_hosts_does_without_the_one_that_is_gone(store, tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.running.workforce.REVIVAL", 0.5)
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    w = Workflow("hosts")
    w.add(toys.field, place=Place(over={"config": list("abcd")}))
    paths = {"PYTHONPATH": f"{Path.cwd()}:{Path(toys.__file__).parent}"}
    site = ClusterSection(kind="ssh", hosts=("here", "gone"), cores=1, interface="lo", environment=paths)
    seen: list[int] = []

    def listen(event: dict) -> None:
        if event["event"] == "cluster-ready":
            seen.extend(each.stat().st_mode & 0o777 for each in store.path.glob(".runs/*/.certificates-*/*"))

    outcome = run(plan(w, store), store, cluster=Hosts(site), listener=listen)
    assert outcome.exit_status == 0, outcome.table()
    assert seen == [0o600] * 3
    assert not list(store.path.glob(".runs/*/.certificates-*"))
    said = [event.message for event in read_events(store, outcome.run)]
    assert any("gone: ssh ended with code 255: no route to gone" in message for message in said)
