"""A Slurm of its own in a temporary folder: a node of more processors than this machine has, fake GPUs."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from secrets import token_bytes

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol", "sinfo")
PATIENCE = 30.0
KILL_WAIT = 5
"""Seconds between the signals by which a job is ended."""

CONFIGURATION = """
ClusterName=trial
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={controller}
SlurmdPort={daemon}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=2,requeue_delay=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
MpiDefault=none
KillWait={kill_wait}
OverTimeLimit=0
SlurmdTimeout=10
JobRequeue=1
NodeName={host} NodeAddr=127.0.0.1 CPUs=8 RealMemory=4000 Gres=gpu:2 State=UNKNOWN
PartitionName=work Nodes=ALL Default=YES MaxTime=1:00:00 State=UP
PartitionName=closed Nodes=ALL State=DOWN
"""


class ControlledSlurm:
    """Its daemons, started and killed at will."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._host = socket.gethostname().split(".")[0]
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("munge", "state", "spool"):
            (folder / name).mkdir()
            (folder / name).chmod(0o755)
        key = folder / "munge" / "key"
        key.write_bytes(token_bytes(1024))
        key.chmod(0o400)
        gpus = [folder / "gpu0", folder / "gpu1"]
        for gpu in gpus:
            gpu.touch()
        user, controller, daemon = _user(), _free_port(), _free_port()
        (folder / "slurm.conf").write_text(
            CONFIGURATION.format(
                host=self._host,
                user=user,
                controller=controller,
                daemon=daemon,
                folder=folder,
                kill_wait=KILL_WAIT,
            )
        )
        (folder / "gres.conf").write_text("".join(f"Name=gpu File={gpu}\n" for gpu in gpus))
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def start(self) -> None:
        """Start all daemons, and wait until the node takes jobs."""
        munge = self.folder / "munge"
        self._start(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={munge / 'key'}",
            f"--socket={munge / 'socket'}",
            f"--pid-file={munge / 'pid'}",
            f"--log-file={munge / 'log'}",
            f"--seed-file={munge / 'seed'}",
        )
        _wait(lambda: (munge / "socket").exists(), "munged makes its socket")
        self.start_controller()
        self.start_node()
        _wait(lambda: "idle" in self.ask("sinfo", "-h", "-o", "%t"), "the node is idle")

    def start_controller(self) -> None:
        """Start the controller, and wait until it answers."""
        self._start("slurmctld", "-D")
        _wait(lambda: " is UP" in self.ask("scontrol", "ping"), "the controller answers")

    def start_node(self) -> None:
        """Start the node's daemon."""
        self._start("slurmd", "-D")

    def stop_controller(self) -> None:
        """Stop the controller, which keeps its state: one that is killed forgets the last seconds."""
        controller = self._daemons.pop("slurmctld")
        controller.terminate()
        controller.wait(PATIENCE)

    def kill(self, name: str) -> None:
        """Kill a daemon; jobs of a node's go on under their own keepers."""
        daemon = self._daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def close(self) -> None:
        """End all jobs and daemons."""
        subprocess.run(
            ["scancel", "--user", _user()], env=self.environment, capture_output=True, timeout=PATIENCE
        )
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.ask("squeue", "-h"):
            time.sleep(0.2)
        for daemon in reversed(self._daemons.values()):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self._daemons.values():
            try:
                daemon.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                daemon.kill()

    def ask(self, *command: str) -> str:
        """What a command prints; '' if it fails."""
        done = self._run(*command)
        return done.stdout.strip() if not done.returncode else ""

    def jobs(self) -> dict[str, str]:
        """States of all jobs that have not ended, by id; no answer does not mean that there are none."""
        squeue, deadline = ("squeue", "-h", "-r", "-o", "%i %T"), time.monotonic() + PATIENCE
        while (done := self._run(*squeue)).returncode:
            assert time.monotonic() < deadline, done.stderr
            time.sleep(0.2)
        return dict(line.split() for line in done.stdout.splitlines())

    def wait_for_jobs(self, number: int, state: str, patience: float = PATIENCE) -> list[str]:
        """Wait until so many jobs at least are in a state; returns their ids."""

        def found() -> list[str]:
            return [job for job, its in self.jobs().items() if its == state]

        _wait(lambda: len(found()) >= number, f"{number} jobs are {state}", patience)
        return found()

    def wait_for_state(self, job: str, state: str) -> None:
        """Wait until a job is in a state."""
        _wait(lambda: self.jobs().get(job) == state, f"job {job} is {state}")

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE)

    def _start(self, name: str, *options: str) -> None:
        with open(self.folder / f"{name}.out", "ab") as output:
            self._daemons[name] = subprocess.Popen(
                [shutil.which(name) or name, *options],
                env=self.environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )


def missing_programs() -> str:
    """A reason to skip, '' where Slurm is installed."""
    absent = [name for name in PROGRAMS if not shutil.which(name)]
    return f"not installed: {', '.join(absent)} (slurmctld, slurmd, slurm-client, munge)" if absent else ""


def _wait(condition: object, what: str, patience: float = PATIENCE) -> None:
    assert callable(condition)
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"waited {patience:g} s in vain until {what}"
        time.sleep(0.2)


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
