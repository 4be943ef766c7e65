"""The least of what a machine, its control groups at every level, and resource limits allow, is counted."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.running import driver
from pipeline.running.clusters import local
from pipeline.worker import resident
from stages.base import host_memory
from stages.base.host_memory import available_memory, memory_limit
from stages.lqcd.eigen import memory as eigen

GB = 10**9
ROOT = Path(__file__).parents[2]
UNLIMITED = "9223372036854771712\n"


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 94 GB, 60 of which are free, without resource limits."""
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=94 * GB, available=60 * GB))
    monkeypatch.setattr("resource.getrlimit", lambda kind: (resource.RLIM_INFINITY,) * 2)


def process(
    tmp_path: Path, groups: str, mounts: list[str], files: dict[str, dict[str, str]] | None = None
) -> Path:
    """A folder as `/proc/self`, with control groups below `tmp_path/sys fs`; files: by folder there."""
    place = str(tmp_path / "sys fs").replace(" ", "\\040")
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(groups)
    lines = [f"{30 + k} 24 0:26 {mount.format(place)}\n" for k, mount in enumerate(mounts)]
    (proc / "mountinfo").write_text(f"22 1 0:20 / / rw - ext4 /dev/sda rw\n{''.join(lines)}")
    for folder, contents in (files or {}).items():
        (tmp_path / "sys fs" / folder).mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (tmp_path / "sys fs" / folder / name).write_text(content)
    return proc


V2 = ["/ {}/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"]
V1 = ["/ {}/cpu rw - cgroup cgroup rw,cpu", "/ {}/memory rw - cgroup cgroup rw,memory"]
JOB = "system.slice/slurmstepd.scope/job_7/step_0/user/task_0"
OLD = "slurm/uid_1000/job_7/step_batch/task_0"


@pytest.mark.parametrize("level", range(len(JOB.split("/")) + 1))
def test_every_level_of_version_2_counts(tmp_path: Path, level: int) -> None:
    parts = JOB.split("/")
    files = {"/".join(["cgroup", *parts[:k]]): {"memory.max": "max\n"} for k in range(len(parts) + 1)}
    limited = "/".join(["cgroup", *parts[:level]])
    files[limited] = {
        "memory.max": f"{2 * GB}\n",
        "memory.current": f"{GB + 7}\n",
        "memory.stat": "anon 5\nfile 600\ninactive_anon 3\nactive_file 300\ninactive_file 200\n",
    }
    proc = process(tmp_path, f"0::/{JOB}\n", V2, files)
    assert memory_limit(proc) == 2 * GB
    assert available_memory(proc) == 2 * GB - (GB + 7) + 500


@pytest.mark.parametrize("level", range(len(OLD.split("/")) + 1))
def test_every_level_of_version_1_counts(tmp_path: Path, level: int) -> None:
    parts = OLD.split("/")
    files = {
        "/".join(["memory", *parts[:k]]): {"memory.limit_in_bytes": UNLIMITED} for k in range(len(parts) + 1)
    }
    files["/".join(["memory", *parts[:level]])] = {
        "memory.limit_in_bytes": f"{2 * GB}\n",
        "memory.usage_in_bytes": f"{GB + 7}\n",
        "memory.stat": "active_file 3\ninactive_file 2\ntotal_active_file 300\ntotal_inactive_file 200\n",
    }
    files["memory/slurm/other"] = {"memory.limit_in_bytes": "5\n"}
    groups = f"9:pids:/x\n4:cpuacct,memory:/{OLD}\n1:cpu:/\n0::/\n"
    proc = process(tmp_path, groups, V1, files)
    assert memory_limit(proc) == 2 * GB
    assert available_memory(proc) == 2 * GB - (GB + 7) + 500


@pytest.mark.parametrize(
    ("groups", "mounts", "folder", "name"),
    [
        ("0::/\n", V2, "cgroup", "memory.max"),  # a container with a name space of its own
        ("0::/../../elsewhere\n", V2, "cgroup", "memory.max"),
        ("0::/\n", V2, "cgroup", "memory.high"),  # beyond which the kernel slows the process down
        (f"4:memory:/docker/a/{OLD}\n", ["/docker/a {}/m ro - cgroup - ro,memory"], "m/slurm", V1),
        ("4:memory:/docker/a\n", ["/docker/a {}/m ro - cgroup - ro,memory"], "m", V1),
        ("4:memory:/\n", ["/docker/a {}/m ro - cgroup - ro,memory"], "m", V1),
        ("4:memory:/job\n0::/unified\n", [*V1, *V2], "memory/job", V1),
        ("4:memory:/job\n0::/unified\n", [*V1, *V2], "cgroup/unified", "memory.max"),
    ],
)
def test_containers_and_both_versions(tmp_path, groups, mounts, folder, name):
    name = "memory.limit_in_bytes" if name is V1 else str(name)
    assert memory_limit(process(tmp_path, groups, mounts, {folder: {name: f"{2 * GB}"}})) == 2 * GB


@pytest.mark.parametrize("groups", ["", "0::/\n", "4:memory:/\n", "3:cpu:/x\n", f"0::/{JOB}\n"])
def test_without_limits_the_machine_counts(tmp_path: Path, groups: str) -> None:
    files = {"cgroup": {"memory.max": "max"}, "memory": {"memory.limit_in_bytes": UNLIMITED}}
    proc = process(tmp_path, groups, [*V1, *V2], files)
    assert (memory_limit(proc), available_memory(proc)) == (94 * GB, 60 * GB)
    assert (memory_limit(tmp_path), available_memory(tmp_path)) == (94 * GB, 60 * GB)


@pytest.mark.parametrize("word", ["max", "lots", "", "-1", "0", "1e9", "9" * 5000, "5\n7"])
def test_what_is_no_limit_does_not_count(tmp_path: Path, word: str) -> None:
    files = {
        "cgroup/job": {"memory.max": word, "memory.current": word},
        "cgroup": {"memory.max": f"{5 * GB}\n"},
    }
    proc = process(tmp_path, "0::/job\n", V2, files)
    assert memory_limit(proc) == available_memory(proc) == 5 * GB


@pytest.mark.parametrize("name", ["cgroup", "mountinfo", "statm"])
@pytest.mark.parametrize(
    "text", ["\n", "garbage\n", "0::\n", "5:memory\n", "30 24 0:26\n", "30 24 - x\n", "1 2\n"]
)
def test_lines_of_a_kernel_that_nobody_knows_are_left_out(tmp_path: Path, name: str, text: str) -> None:
    """Memory is asked for when the package is imported: it would end every command."""
    proc = process(tmp_path, "0::/job\n", V2, {"cgroup/job": {"memory.max": f"{GB}\n"}})
    before = (proc / name).read_text() if name != "statm" else ""
    (proc / name).write_text(text + before)
    assert memory_limit(proc) == available_memory(proc) == GB


@pytest.mark.parametrize(("kind", "field"), [("AS", 0), ("DATA", 5), ("RSS", 1)])
def test_resource_limits_count(tmp_path, monkeypatch, kind, field):
    limits = {getattr(resource, f"RLIMIT_{kind}"): (3 * GB, resource.RLIM_INFINITY)}
    monkeypatch.setattr("resource.getrlimit", lambda kind: limits.get(kind, (resource.RLIM_INFINITY,) * 2))
    proc = process(tmp_path, "", [])
    assert (memory_limit(proc), available_memory(proc)) == (3 * GB, 3 * GB)
    pages = ["0"] * 7
    pages[field] = "1000"
    (proc / "statm").write_text(" ".join(pages))
    assert available_memory(proc) == 3 * GB - 1000 * resource.getpagesize()


def test_everybody_asks_the_same() -> None:
    """Nothing asks Dask or psutil, which know the outermost group or the machine only."""
    assert {local.MEMORY_LIMIT, driver.MEMORY_LIMIT, resident.MEMORY_LIMIT} == {host_memory.MEMORY_LIMIT}
    assert eigen.available_memory is available_memory
    asked = re.compile(r"distributed\.system|virtual_memory|MemTotal|SC_PHYS_PAGES")
    sources = [
        path for folder in ("pipeline", "stages", "workflows") for path in (ROOT / folder).rglob("*.py")
    ]
    assert [path.name for path in sources if asked.search(path.read_text())] == ["host_memory.py"]


def test_a_process_with_a_resource_limit_has_no_more() -> None:
    """Really, as `ulimit -v` of a batch system does it."""
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (3_000_000_000,) * 2);"
        "from pipeline.running.clusters import local; from pipeline.worker.resident import process_cache;"
        "print(local.Local().memory_limit, process_cache(10**12, 'cpu').limit, local.worker_memory(1, 0))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert list(map(int, done.stdout.split())) == [3_000_000_000, 1_200_000_000, 2_700_000_000]
