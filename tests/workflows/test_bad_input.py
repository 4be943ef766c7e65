"""Mistakes through the command line: one clear message, a non-zero exit, nothing lost in the store."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
from tiny_project import TINY, CommandLine, edit, missing, refused

from pipeline import Store
from stages.lqcd.gauge.heatbath import thermalised
from stages.lqcd.lattice.formats import write_ildg
from stages.lqcd.lattice.geometry import Lattice

COMMAND = [sys.executable, "-c", "import sys; from workflows.command import main; sys.exit(main())"]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def g2(tmp_path: Path) -> Path:
    file = tmp_path / "g2.yaml"
    file.write_text(TINY)
    return file


@pytest.mark.parametrize("command", ["run", "plan", "report", "export", "status", "verify", "gc"])
def test_every_command_refuses_a_bad_file(quarkline: CommandLine, g2: Path, command: str) -> None:
    edit(g2, ("masses: {light", "masses: {lihgt"))
    refused(
        quarkline(command, g2), "g2.yaml: unknown key `lihgt` in `masses` (line 5): did you mean `light`?"
    )
    assert not (g2.parent / "store").exists()


@pytest.mark.parametrize("key", ["store", "report"])
@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/proc/here/below", "/proc: Permission denied"),
        ("closed/below", "{here}/closed: Permission denied"),
        ("loose/below", "{here}/loose is a link to nowhere, which is not there"),
        ("file/below", "{here}/file/below: Not a directory"),
        ("x" * 300, "{here}/" + "x" * 300 + ": File name too long"),
    ],
)
def test_plan_says_where_a_run_cannot_write(quarkline, g2, monkeypatch, key, place, why):
    here, access = g2.parent, os.access
    monkeypatch.chdir(here)
    Path("file").touch()
    Path("closed").mkdir()
    Path("loose").symlink_to("nowhere")
    before = sorted(here.rglob("*"))
    monkeypatch.setattr(
        os, "access", lambda path, how: Path(path).name != "closed" and access(path, how)
    )  # as root may do everything
    answer = quarkline("plan", edit(g2, (f"{key}: {key}\n", f"{key}: {place}\n")))
    if key == "store" and place[0] in "fx":  # which is refused as it is read
        refused(answer, f"store {here / place} cannot be read: {why.rpartition(': ')[2]}")
    else:
        what = "the store" if key == "store" else "the report's folder"
        said = f"{what} {here / place} cannot be written ({why.format(here=here)}): choose another one by"
        assert answer.code == 0 and f"warning: {said}" in answer.out.replace("\n", " ")
    assert sorted(here.rglob("*")) == before


def test_lattice_beyond_the_machines_memory(quarkline, g2, monkeypatch):
    monkeypatch.setattr("pipeline.running.clusters.local.MEMORY_LIMIT", 1_000_000_000)
    assert "warning" not in quarkline("plan", g2).out
    edit(g2, ("[4, 4, 4, 4]", "[32, 32, 32, 64]"))
    answer = quarkline("run", g2)
    assert answer.code == 2 and answer.err.startswith("error: a task of node 'loops_light' needs")
    assert "but this machine has 0.93 GiB" in answer.err
    assert not (g2.parent / "store").exists()
    answer = quarkline("plan", g2)
    assert answer.code == 0 and "\nwarning: a task of node 'loops_light' needs" in answer.out


def test_plan_for_gpus_on_a_machine_without(quarkline, g2, monkeypatch):
    monkeypatch.setattr("pipeline.running.clusters.cuda.Cuda.devices", None)
    edit(g2, ("[4, 4, 4, 4]", "[32, 32, 32, 48]"))
    answer = quarkline("plan", g2, "--cluster", "cuda")
    said = (
        r"^projected: at least \S+ GB on each GPU, whose memory is not known here: --set cluster.gpu_memory"
    )
    assert re.search(said, answer.out, re.MULTILINE)
    assert json.loads(quarkline("plan", g2, "--cluster", "cuda", "--json").out)["device_memory_bytes"] > 5e9
    assert json.loads(quarkline("plan", g2, "--json").out)["device_memory_bytes"] is None


def test_store_of_another_version_or_that_cannot_be_read_is_left_alone(quarkline, project):
    mark = project.parent / "store" / "quarkline.json"
    mark.write_text(json.dumps({"format": 99}))
    files = sorted((project.parent / "store").rglob("*"))
    for command in ("run", "plan", "status", "verify", "gc"):
        refused(quarkline(command, project), "has format 99, this version of quarkline reads 1 and 2")
    mark.unlink()
    mark.mkdir()
    refused(quarkline("run", project), "cannot be read")
    assert sorted((project.parent / "store").rglob("*")) == files


@pytest.mark.usefixtures("unreported")
def test_report_that_cannot_be_written_loses_nothing(quarkline, project, monkeypatch):
    edit(project, ("report: report", "report: g2.yaml/report"))
    said = f"error: cannot write into {project}/report: Not a directory"
    for command in ("report", "export"):
        answer = quarkline(command, project)
        assert answer.code == 2 and "Traceback" not in answer.err and said in answer.err
    answer = quarkline("run", project)
    assert answer.code == 2 and said in answer.err
    assert f"; all results are in {project.parent}/store: once that is mended, quarkline report" in answer.err
    answer = quarkline("run", project, "--json")
    content = json.loads(answer.out)
    assert answer.code == 2 and content["report"] is None and "Not a directory" in content["error"]
    assert quarkline("report", edit(project, ("report: g2.yaml/report", "report: report"))).code == 0
    for refusal in (PermissionError(13, "Permission denied"), OSError(28, "No space left")):

        def refuse(*_: object, refusal: OSError = refusal, **options: object) -> None:
            raise refusal

        monkeypatch.setattr("pipeline.reading.report._replace", refuse)
        answer = quarkline("report", project)
        said = f"cannot write into {project.parent}/report: {refusal.strerror}"
        assert answer.code == 2 and said in answer.err


@pytest.mark.parametrize("command", ["run", "plan", "status", "verify"])
def test_stage_folder_that_cannot_be_listed(quarkline, project, monkeypatch, command):
    listed, folder = os.scandir, project.parent / "store" / "current_loops"

    def scandir(path: Path) -> object:
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr("os.scandir", scandir)
    refused(quarkline(command, project), f"{folder} cannot be listed: Permission denied; a store reads all")


@pytest.mark.parametrize("command", ["run", "plan", "report", "export"])
def test_relative_store_of_another_folder(quarkline, project, monkeypatch, command):
    elsewhere = project.parent / "sub" / "folder"
    elsewhere.mkdir(parents=True)
    monkeypatch.chdir(elsewhere)
    refused(
        quarkline(command, project),
        f"the store 'store' would be {elsewhere}/store, but results of this file are in "
        f"{project.parent}/store: run it in {project.parent}, or say which one by --store FOLDER",
    )
    assert not (elsewhere / "store").exists()
    assert missing(quarkline, project, "--store", "store")
    assert not missing(quarkline, project, "--store", "../../store")
    if command == "plan":  # some of the results are results
        store = Store(project.parent / "store")
        store.remove("current_loops", min(store.keys("current_loops")))
        refused(quarkline(command, project), f"are in {project.parent}/store: run it in")
    assert missing(quarkline, edit(project, ("seed: 977", "seed: 978")))  # of no use there


@pytest.mark.parametrize("copied", [False, True], ids=["the file", "a copy"])
@pytest.mark.usefixtures("unreported")
def test_relative_store_of_a_folder_beside(quarkline, project, cluster, monkeypatch, copied):
    """Two folders in which one workflow is run have a store each: allowed, and said where one is new."""
    before, beside = project.parent / "before", project.parent / "beside"
    for folder in (before, beside, project.parent / "closed"):
        folder.mkdir()
    os.rename(project.parent / "store", before / "store")
    file = beside / "g2.yaml" if copied else project
    os.rename(project, file)
    monkeypatch.chdir(beside)
    said = (
        f"the store 'store' is {beside}/store and holds nothing of this file, results of which are in "
        f"{before}/store: to go on from them, run it in {before}, or say --store {before}/store"
    )
    assert f"warning: {said}" in quarkline("plan", file).out.replace("\n", " ")
    assert json.loads(quarkline("plan", file, "--json").out)["warnings"] == [said]
    if copied:
        limited = quarkline("run", file, "--json", "--cluster", cluster, "--time-limit", "1s")
        assert json.loads(limited.out)["warnings"] == [said]
    for options in (("--store", "store"), ("--store", "../before/store")):
        assert "warning" not in quarkline("plan", file, *options).out
    monkeypatch.chdir(before)
    assert "warning" not in quarkline("plan", file).out
    edit(file, ("seed: 977", "seed: 978"))
    monkeypatch.chdir(beside)
    assert "warning" not in quarkline("plan", file).out


def test_few_file_handles(quarkline: CommandLine, g2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda kind: (30, 30))
    answer = quarkline("run", g2, "--workers", "2")
    assert answer.code == 2 and "Traceback" not in answer.err
    assert "this process may open 30 files, and 2 workers take about 48 in it: ulimit -n 1024" in answer.err


def write_configuration(path: Path, extents: tuple[int, int, int, int], seed: int) -> None:
    lattice = Lattice(extents)
    write_ildg(path, thermalised(lattice, 6.0, seed, path.name, 2, 1), lattice, 64)


@pytest.fixture
def files(g2: Path) -> Path:
    """The tiny workflow on two configurations in files."""
    (g2.parent / "confs").mkdir()
    for number in (1, 2):
        write_configuration(g2.parent / "confs" / f"conf.{number}.ildg", (4, 4, 4, 4), 70 + number)
    source = re.search(r"  heatbath: .*\n", TINY)
    assert source
    return edit(g2, (source[0], '  files: "confs/*.ildg"\n'))


def test_one_file_fills_no_bin_of_two(quarkline: CommandLine, files: Path) -> None:
    (files.parent / "confs" / "conf.2.ildg").unlink()
    assert quarkline("plan", files).code == 0
    edit(files, ("report: report", "report: report\nanalysis: {jackknife_bin: 2}"))
    refused(quarkline("run", files), "1 configuration in bins of 2 leave fewer than two bins")


@pytest.mark.slow
def test_files_count_by_content_and_not_by_path(quarkline: CommandLine, files: Path, cluster: str) -> None:
    """A flipped bit is found when the file is read, and costs only that configuration. Results that are
    complete stay so when files move, until their content is another.
    """
    damaged = files.parent / "confs" / "conf.2.ildg"
    good = damaged.read_bytes()
    bad = bytearray(good)
    bad[len(bad) // 2] ^= 4
    damaged.write_bytes(bad)
    answer = quarkline("run", files, "--cluster", cluster)
    assert answer.code == 1 and "Traceback" not in answer.err
    assert len(re.findall(r"^failed: 7 chunks: .*conf\.2\.ildg.*checksum", answer.out, re.MULTILINE)) == 1
    assert answer.out.count("failed: ") == 1
    assert "\n  loops_light config=conf.2.ildg noise=0..3 probe=0 (2 chunks)" in answer.out
    assert re.search(r"loops_light +2 +2\b", answer.out) and re.search(r"correlator +1 +0 +1\b", answer.out)
    damaged.write_bytes(good)
    answer = quarkline("run", files, "--cluster", cluster)
    assert answer.code == 0
    assert re.search(r"correlator +1 +0\b", answer.out)
    page = (files.parent / "report" / "index.html").read_text()
    assert f"{sha256(good).hexdigest()}  configuration config=conf.2.ildg" in page
    (files.parent / "confs").rename(files.parent / "elsewhere")
    edit(files, ("confs/*.ildg", "elsewhere/*.ildg"))
    assert "0 to compute" in quarkline("plan", files).out
    write_configuration(files.parent / "elsewhere" / "conf.2.ildg", (4, 4, 4, 4), 75)
    text = quarkline("plan", files).out
    assert re.search(r"loops_light +current_loops +4 +2 +2 +upstream changed: configuration", text)


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A command line in its own process group, with the package from this checkout."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "QUARKLINE": " ".join(map(repr, COMMAND))}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_full_disk_loses_nothing(quarkline: CommandLine, project: Path, cluster: str) -> None:
    """With a limit on the size of a file, the larger arrays of new configurations cannot be written.

    The short form is that of the engine.
    """
    edit(project, ("configurations: 2", "configurations: 3"), ("sweeps: 3", "sweeps: 2"))
    done = shell("ulimit -f 64; eval $QUARKLINE run g2.yaml --workers 1 --store full", project.parent)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert "make room and run the same command again" in done.stdout + done.stderr
    assert quarkline("verify", "full").code == 0
    assert quarkline("run", project, "--store", "full", "--cluster", cluster).code == 0


@pytest.mark.usefixtures("unreported")
def test_interrupted_run_goes_on(quarkline: CommandLine, project: Path, cluster: str) -> None:
    """Ctrl-C ends the command with 130; the same command computes the rest."""
    edit(project, ("sweeps: 3", "sweeps: 3000"))
    started = subprocess.Popen(
        [*COMMAND, "run", "g2.yaml", "--workers", "1"],
        cwd=project.parent,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stderr
    for line in started.stderr:
        if line.startswith("dashboard:"):
            break
    started.send_signal(2)
    out, err = started.communicate(timeout=60)
    assert started.returncode == 130, out + err
    assert "stopped by SIGINT" in out and "Traceback" not in err
    edit(project, ("sweeps: 3000", "sweeps: 3"))
    assert quarkline("run", project, "--cluster", cluster).code == 0
