"""Files about clusters to start from: each is read and says what it should, and its script runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_project import TINY, CommandLine

from workflows.cluster_choice import chosen_site
from workflows.starters import cluster_files

SITES = {
    "cuda_node": ("cuda", "cuda", 1),
    "pbs_gpu": ("pbs", "cuda", 4),
    "running_cluster": ("address", "cuda", 1),
    "slurm_cpu": ("slurm", "cpu", 4),
    "slurm_gpu": ("slurm", "cuda", 4),
    "ssh_hosts": ("ssh", "cuda", 2),
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_all_files_are_read() -> None:
    read = {
        name: chosen_site(Path("g2.yaml"), str(path))
        for name, path in cluster_files().items()
        if path.suffix == ".yaml"
    }
    assert {name: (site.kind, site.backend, site.each) for name, site in read.items()} == SITES


def test_init_writes_a_file_about_a_cluster(quarkline: CommandLine) -> None:
    answer = quarkline("init", "slurm_gpu", "site.yaml")
    assert answer.code == 0 and "quarkline run WORKFLOW --cluster site.yaml" in answer.out
    text = Path("site.yaml").read_text()
    assert "--cluster site.yaml" in text and "workflows/clusters" not in text
    assert quarkline("init", "gpu_job").code == 0 and Path("gpu_job.sh").is_file()


def test_what_is_written_last_counts() -> None:
    """A cluster that a command names goes before the workflow file's section, and --set before both."""
    Path("g2.yaml").write_text(TINY + "cluster: {kind: slurm, cores: 4, workers: 3, environment: {A: b}}\n")
    Path("site.yaml").write_text("kind: pbs\ncores: 8\n")
    file = Path("g2.yaml")
    assert chosen_site(file).kind == "slurm"
    assert (chosen_site(file, "site.yaml").kind, chosen_site(file, "site.yaml").workers) == ("pbs", None)
    changed = chosen_site(file, None, ["cluster.cores=16", "cluster.environment.C=d"])
    assert (changed.cores, changed.environment) == (16, {"A": "b", "C": "d"})
    assert chosen_site(file, "site.yaml", ["cluster.cores=2", "cluster.cores=3"]).cores == 3


@pytest.mark.parametrize(("text", "loaded"), [(TINY, True), ("workflow: nonsense\n", False)])
def test_a_worker_that_looks_ahead_has_the_stages_of_its_workflow(text: str, loaded: bool) -> None:
    """Whatever is wrong with the file is the driver's to say."""
    Path("g2.yaml").write_text(text)
    script = "import sys; from workflows.ahead import dask_setup; dask_setup(None); print(*sys.modules)"
    environment = {**os.environ, "QUARKLINE_AHEAD": "g2.yaml", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ("stages.loops.current_loops" in done.stdout.split()) is loaded


@pytest.mark.slow
def test_the_script_of_one_job_runs_scheduler_workers_and_driver() -> None:
    """On processors here, with workers that each see one of two numbers of a GPU."""
    Path("g2.yaml").write_text(TINY)
    root = Path(__file__).parents[2]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "0,1", "PYTHONPATH": str(root), "PATH": path}
    done = subprocess.run(
        ["bash", cluster_files()["gpu_job"], "g2.yaml", "--set", "cluster.backend=cpu"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert Path("report/index.html").is_file()
    assert "Traceback" not in done.stderr
