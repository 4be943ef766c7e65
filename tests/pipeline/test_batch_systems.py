"""Batch systems by their commands, which are played here: scripts' heads, submission, death and its proof."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import dask
import pytest

from pipeline import batch
from pipeline.batch import KINDS, JobRequest, State, batch_system
from pipeline.running.clusters.section import ClusterSection, Workers
from stages.base.errors import InputError

Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Have a command print this, and note how it was called."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def played(command: str, out: str = "", err: str = "", code: int = 0) -> None:
        (tmp_path / "out").write_text(out)
        (tmp_path / "err").write_text(err)
        text = f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n/bin/cat > {tmp_path}/stdin\n'
        text += f"/bin/cat {tmp_path}/out\n/bin/cat {tmp_path}/err >&2\nexit {code}\n"
        (tmp_path / command).write_text(text)
        (tmp_path / command).chmod(0o700)

    return played


def asked(folder: Path) -> str:
    return (folder / "asked").read_text().strip()


SUBMISSIONS = {
    "slurm": ("sbatch", "17;cluster\n", "17", "--parsable --dependency=afterany:3 SCRIPT"),
    "pbs": ("qsub", "17.server\n", "17.server", "-W depend=afterany:3 SCRIPT"),
    "lsf": ("bsub", "Job <17> is submitted to default queue <normal>.\n", "17", "-w ended(3)"),
}


@pytest.mark.parametrize("kind", SUBMISSIONS)
def test_jobs_are_submitted_after_others(kind: str, play: Play, tmp_path: Path) -> None:
    command, answer, job, arguments = SUBMISSIONS[kind]
    script = tmp_path / "script"
    script.write_text("#!/bin/bash\n")
    system = batch_system(kind)
    with pytest.raises(InputError, match=f"{command} is not on this machine's PATH"):
        system.submit(script)
    play(command, answer)
    assert system.submit(script, after="3") == job
    assert asked(tmp_path) == arguments.replace("SCRIPT", str(script))
    assert ((tmp_path / "stdin").read_text() == "#!/bin/bash\n") == (kind == "lsf")
    play(command, err="no such\nqueue\n", code=1)
    with pytest.raises(InputError, match=f"{command} refuses {script}: no such queue"):
        system.submit(script)


PBS = """Job Id: 1.server
    Job_Name = quarkline-a
    job_state = R
    queue = workq

Job Id: 2.server
    Job_Name = other
    job_state = F
"""
BJOBS = "1|RUN|quarkline-a\n2|EXIT|other\n4|ZOMBI|lost\n"
LOOKS = {
    "slurm": ("squeue", "1|1|1|RUNNING|quarkline-a\n7_3|12|7|PENDING|b\n2|2|2|TIMEOUT|x\n", "", 0),
    "pbs": ("qstat", PBS, "qstat: Unknown Job Id 3.server\nqstat: 5.server Job has finished, use -x\n", 153),
    "lsf": ("bjobs", BJOBS, "Job <3> is not found\nJob <5> is not found\n", 255),
}


@pytest.mark.parametrize("kind", LOOKS)
def test_death_is_told_from_silence(kind: str, play: Play) -> None:
    command, out, err, code = LOOKS[kind]
    system, end = batch_system(kind), ".server" if kind == "pbs" else ""
    jobs = [f"{number}{end}" for number in range(1, 6)]
    assert {seen.state for seen in system.look(jobs).values()} == {State.UNKNOWN}  # no such command
    play(command, out, err, code)
    states = [seen.state for seen in system.look(jobs).values()]
    silent = State.UNKNOWN if kind in ("pbs", "lsf") else State.ENDED  # 4 is neither shown nor denied
    assert states == [State.ALIVE, State.ENDED, State.ENDED, silent, State.ENDED]
    assert system.look(jobs)[jobs[0]].name == "quarkline-a"
    play(command, err="cannot connect to server", code=1)
    assert system.state(jobs[0]) == State.UNKNOWN


def test_slurm_says_that_a_job_is_none_and_knows_tasks_of_arrays(play: Play, tmp_path: Path) -> None:
    slurm = batch_system("slurm")
    play("squeue", err="slurm_load_jobs error: Invalid job id specified\n", code=1)
    assert slurm.state("9") == State.ENDED
    play("squeue", LOOKS["slurm"][1])
    assert [slurm.state(job) for job in ("7", "7_3", "12", "7_2")] == ["alive", "alive", "alive", "ended"]
    assert asked(tmp_path) == "-h -r -j 7_2 -o %i|%A|%F|%T|%j"


def test_a_silent_batch_system_is_waited_for_shortly(play, tmp_path, monkeypatch):
    monkeypatch.setattr(batch, "ANSWER", 0.2)
    (tmp_path / "squeue").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    (tmp_path / "squeue").chmod(0o700)
    assert batch_system("slurm").state("1") == State.UNKNOWN


def test_cancelled_is_what_cannot_be_alive(play: Play) -> None:
    slurm = batch_system("slurm")
    play("scancel")
    assert slurm.cancel(["1"]) and slurm.cancel([])
    play("scancel", err="Invalid job id specified", code=1)
    play("squeue", err="Invalid job id specified", code=1)
    assert slurm.cancel(["1"])
    play("squeue", "1|1|1|RUNNING|a\n")
    play("scancel", "1|1|1|RUNNING|a\n", code=1)
    assert not slurm.cancel(["1"])


ASKED = {"gpus": 4, "cores": 32, "memory": "200GiB", "walltime": "04:00:30"}
ASKED |= {"partition": "gpu", "account": "lqcd"}
ASKED |= {"directives": ("--exclusive",), "prologue": ("module load cuda",), "workers": Workers(min=8, max=8)}
ASKED |= {"container": "apptainer exec --nv q.sif", "environment": {"CACHE": "/scratch/a b"}}
GPU_NODES = ClusterSection(kind="slurm", backend="cuda", **ASKED)
HEADS = {
    "slurm": """#SBATCH --job-name=name
#SBATCH --output=log
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --mem=204800M
#SBATCH --time=04:00:30
#SBATCH --partition=gpu
#SBATCH --account=lqcd
#SBATCH --gres=gpu:4
#SBATCH --exclusive""",
    "pbs": """#PBS -N name
#PBS -o log
#PBS -j oe
#PBS -l select=2:ncpus=32:ngpus=4:mem=204800mb
#PBS -l place=scatter
#PBS -l walltime=04:00:30
#PBS -q gpu
#PBS -A lqcd
#PBS --exclusive""",
    "lsf": """#BSUB -J name
#BSUB -o log
#BSUB -n 64
#BSUB -R "span[ptile=32]"
#BSUB -gpu "num=4"
#BSUB -M 204800MB
#BSUB -W 241
#BSUB -q gpu
#BSUB -P lqcd
#BSUB --exclusive""",
}


@pytest.mark.parametrize("kind", HEADS)
def test_head_of_a_whole_job(kind: str) -> None:
    site, system = GPU_NODES.model_copy(update={"kind": kind}), batch_system(kind)
    job = site.job("name", "log", nodes=2)
    assert "\n".join(system.head(job)) == HEADS[kind]
    assert (*site.exports, *site.prologue) == ("export CACHE='/scratch/a b'", "module load cuda")
    assert (site.interpreter, site.backend) == ("apptainer exec --nv q.sif python3", "cuda")
    assert system.on_each_node(job).split()[0] in ("srun", "pbsdsh", "blaunch")


def test_what_is_not_written_is_the_sites() -> None:
    site = {"cores": 16, "memory": "64GiB", "walltime": "02:00", "queue": "normal", "project": "p"}
    with dask.config.set({"jobqueue.lsf": site}):
        settled = ClusterSection(kind="lsf", cores=8).settled()
        assert (settled.cores, settled.memory, settled.walltime) == (8, 64 * 2**30, 7200)
        assert (settled.partition, settled.account) == ("normal", "p")
    with (
        dask.config.set({"jobqueue.slurm": {"walltime": "soon"}}),
        pytest.raises(InputError, match=r"jobqueue\.slurm\.walltime of dask's configuration is 'soon'"),
    ):
        ClusterSection(kind="slurm").settled()


def test_directives_for_gpus_stand_instead_of_our_own() -> None:
    assert [batch_system(kind).kind for kind in KINDS] == list(KINDS)
    assert KINDS == ("slurm", "pbs", "lsf")

    assert [batch_system(kind).kind for kind in KINDS] == list(KINDS)
    assert KINDS == ("slurm", "pbs", "lsf")

    slurm, pbs, lsf = (batch_system(kind) for kind in ("slurm", "pbs", "lsf"))
    assert not any(
        "gres" in line for line in slurm.options(JobRequest("n", "o", gpus=2, directives=("--gpus=2",)))
    )
    own = ("-l select=1:ncpus=8:ngpus=2:model=a100",)
    assert not any("select" in line for line in pbs.options(JobRequest("n", "o", gpus=2, directives=own)))
    assert not any(
        "-gpu" in line for line in lsf.options(JobRequest("n", "o", gpus=2, directives=("-gpu -",)))
    )
