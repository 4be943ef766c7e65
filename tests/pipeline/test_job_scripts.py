"""Scripts of jobs that hold workers, word by word, and what their lines do in a shell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask
import pytest

from pipeline.running.clusters import NO_EMPTY_PATH
from pipeline.running.clusters.jobqueue import JobQueue, cluster_class
from pipeline.running.clusters.jobs import JobList
from pipeline.running.clusters.remote import workers_of_gpus
from pipeline.running.clusters.section import ClusterSection, Workers

pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed")

ASKED = {"gpus": 2, "cores": 16, "memory": "64GiB", "walltime": "2h", "partition": "gpu", "account": "lqcd"}
ASKED |= {"directives": ("--exclusive",), "prologue": ("module load cuda",), "environment": {"A": "b c"}}
ASKED |= {"container": "apptainer exec --nv q.sif", "workers": Workers(min=4, max=4)}
SITE = ClusterSection(kind="slurm", backend="cuda", **ASKED)
PROLOGUE = """\
export NUMBA_NUM_THREADS=8
export OMP_NUM_THREADS=8
export OPENBLAS_NUM_THREADS=1
export MKL_NUM_THREADS=1
export QUARKLINE_GPUS_PER_WORKER=1
export PYTHONSAFEPATH=1
export DASK_DISTRIBUTED__WORKER__HTTP__ROUTES=[]
export A='b c'
module load cuda
"""
CUPY = "apptainer exec --nv q.sif python3 -m stages.base.gpus || exit 1\n"
WORKER = (
    "apptainer exec --nv q.sif python3 -m distributed.cli.dask_worker SCHEDULER --name dummy-name --nthreads "
    "16 --memory-limit 64.00GiB --nanny --death-timeout 60 --nthreads 1 --resources device=1 --memory-limit "
    "0 --no-dashboard --dashboard-address 127.0.0.1:0 --protocol tls:// --tls-ca-file FILE --tls-cert FILE "
    "--tls-key FILE"
)
OF_TWO_GPUS = (
    "set -- 0 1; IFS=,; for device in ${CUDA_VISIBLE_DEVICES:-0,1}; do unset IFS; [ $# -gt 0 ] || break; "
    f'CUDA_VISIBLE_DEVICES="$device" {WORKER} --name dummy-name-$1 & shift; done; wait\n'
)
HEADS = {
    "slurm": """\
#!/usr/bin/env bash

#SBATCH -J quarkline-run
#SBATCH -e RUN/logs/quarkline-run-%J.err
#SBATCH -o RUN/logs/quarkline-run-%J.out
#SBATCH -p gpu
#SBATCH -A lqcd
#SBATCH -n 1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH -t 02:00:00
#SBATCH --gres=gpu:2
#SBATCH --exclusive
""",
    "pbs": """\
#!/usr/bin/env bash

#PBS -N quarkline-run
#PBS -q gpu
#PBS -A lqcd
#PBS -l walltime=02:00:00
#PBS -e RUN/logs/
#PBS -o RUN/logs/
#PBS -l select=1:ncpus=16:ngpus=2:mem=65536mb
#PBS --exclusive
""",
    "lsf": """\
#!/usr/bin/env bash

#BSUB -J quarkline-run
#BSUB -e RUN/logs/dummy-name-%J.err
#BSUB -o RUN/logs/dummy-name-%J.out
#BSUB -q gpu
#BSUB -P "lqcd"
#BSUB -n 16
#BSUB -R "span[hosts=1]"
#BSUB -M 68719477
#BSUB -W 02:00
#BSUB -gpu "num=2"
#BSUB --exclusive
""",
}


def cluster_of(site: ClusterSection, folder: Path) -> Any:
    (folder / "run").mkdir()
    jobs = JobList(folder / "run")
    each = (site.settled().each, site.gpus_per_worker)
    return cluster_class(site.kind)(jobs, *each, **JobQueue(site).options(jobs=jobs))


def script_of(cluster: Any, folder: Path) -> str:
    """The script of a job, without what differs from run to run."""
    words = cluster.job_script().replace(cluster.scheduler.address, "SCHEDULER").split(" ")
    words = ["FILE" if "/.dask-jobqueue.worker." in word else word for word in words]
    return " ".join(words).replace(str(folder / "run"), "RUN")


@pytest.mark.parametrize("kind", HEADS)
def test_script_of_a_job_with_two_gpus(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # nothing is submitted
    with cluster_of(SITE.model_copy(update={"kind": kind}), tmp_path) as cluster:
        script = script_of(cluster, tmp_path)
        assert script == f"{HEADS[kind]}{PROLOGUE}{NO_EMPTY_PATH}\n{CUPY}{OF_TWO_GPUS}"
        assert cluster.new_spec["group"] == ["-0", "-1"]
        cluster.hold(Workers(min=0, max=3))
        assert cluster.wanted == 2  # jobs, for three workers
        assert all(len(names) == 2 for names in cluster.members().values())


@pytest.mark.parametrize("gpus", [2, 4])
def test_jobs_whose_workers_own_several_gpus(gpus, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with cluster_of(SITE.model_copy(update={"gpus": 4, "gpus_per_worker": gpus}), tmp_path) as cluster:
        script = script_of(cluster, tmp_path)
        assert "#SBATCH --gres=gpu:4\n" in script and f"\nexport QUARKLINE_GPUS_PER_WORKER={gpus}\n" in script
        if gpus == 4:
            assert "CUDA_VISIBLE_DEVICES=" not in script and "group" not in cluster.new_spec
        else:
            assert "set -- 0 1; IFS=,; for device in ${CUDA_VISIBLE_DEVICES:-0,1,2,3}; do" in script
            assert 'CUDA_VISIBLE_DEVICES="$devices" ' in script
            assert cluster.new_spec["group"] == ["-0", "-1"]


def test_what_a_person_writes_overrides_the_site_and_nothing_else_does(tmp_path: Path) -> None:
    configured = {"cores": 48, "memory": "96GiB", "processes": 4, "walltime": "12:00:00", "queue": "standard"}
    configured |= {"job-script-prologue": ["module load site"], "job-extra-directives": ["--qos=normal"]}
    configured["worker-extra-args"] = ["--local-directory", "/scratch"]
    configured["log-directory"] = str(tmp_path / "mine")
    with (
        dask.config.set({"jobqueue.slurm": {**dask.config.get("jobqueue.slurm", {}), **configured}}),
        cluster_of(ClusterSection(kind="slurm", walltime="10m"), tmp_path) as cluster,
    ):
        lines = script_of(cluster, tmp_path).splitlines()
    for line in ("-p standard", "--cpus-per-task=48", "--mem=96G", "-t 00:10:00", "--qos=normal"):
        assert f"#SBATCH {line}" in lines
    assert "export NUMBA_NUM_THREADS=12" in lines and "module load site" in lines
    (worker,) = (line for line in lines if "dask_worker" in line)
    assert worker.startswith(sys.executable) and "--nworkers 4" in worker
    assert "--local-directory /scratch --nthreads 1 --resources device=1" in worker


FAKE = """
import json, os, sys
arguments = sys.argv[1:]
print(json.dumps([os.environ["CUDA_VISIBLE_DEVICES"], arguments[-1], arguments[0]]))
"""


@pytest.mark.parametrize(
    ("visible", "seen"),
    [(None, ["0", "1"]), ("3,5", ["3", "5"]), ("GPU-a,GPU-b,GPU-c", ["GPU-a", "GPU-b"]), ("7", ["7"])],
)
def test_each_worker_sees_a_gpu_of_its_own(tmp_path: Path, visible: str | None, seen: list[str]) -> None:
    (tmp_path / "fake.py").write_text(FAKE)
    line = workers_of_gpus(f"{sys.executable} {tmp_path}/fake.py 'a b,c'", "'name of job'", 2)
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    done = subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, check=True)
    workers = sorted(json.loads(each) for each in done.stdout.splitlines())
    assert workers == [[device, f"name of job-{number}", "a b,c"] for number, device in enumerate(seen)]
