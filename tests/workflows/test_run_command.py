"""The tiny workflow through the command line: run, run again, extend, change, report, export."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from datetime import date
from functools import partial
from pathlib import Path
from threading import Thread
from time import sleep
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
import xarray
import zarr
from tiny_project import ENGINES, TINY, CommandLine, edit, missing

from pipeline import At, InputError, Store, open_result, plan, verify
from stages.ensemble.configuration import heatbath_configuration
from stages.ensemble.staggered_operator import asqtad_operator
from stages.loops.correlator import FLAVOURS
from stages.loops.current_loops import current_loops
from workflows import publishing
from workflows.catalogue import load_project
from workflows.g2_disconnected import report


def chunk_times(folder: Path) -> dict[str, int]:
    """When each chunk of the store was written."""
    return {str(path): path.stat().st_mtime_ns for path in folder.glob("store/[!.]*/???/*")}


def test_the_report_has_the_numbers_of_the_store(project: Path) -> None:
    page = (project.parent / "report" / "index.html").read_text()
    headings = re.findall(r"<h2>(.*?)</h2>", page)
    assert headings == [
        *("Disconnected correlator", "Loops", "Error budget", "Solves", "Gauge configurations"),
        *ENGINES,
    ]
    assert page.count("<svg") == 7
    assert "heatbath-1" in page and "light - strange" in page

    table = np.loadtxt(project.parent / "report" / "correlator.txt")
    average = open_result(project.parent / "store", "average")
    np.testing.assert_array_equal(table[:, 0], range(4))
    np.testing.assert_allclose(table[:, 1::2].T, average.correlator, rtol=1e-14)
    np.testing.assert_allclose(table[:, 2::2].T, average.correlator_error, rtol=1e-14)

    text = (project.parent / "report" / "tables.txt").read_text()
    plaquettes = open_result(project.parent / "store", "observables").plaquette.values[:, 0]
    for label, value in zip(("heatbath-0", "heatbath-1"), plaquettes, strict=True):
        assert re.search(rf"{label} +{value:.8f}", text)
    rows = re.findall(r"(loops_\w+) +(\d+) +\d+ / [\d.]+ / \d+ +(\S+) +(\S+) +(\S+)", text)
    expected = {"loops_light": 128, "loops_strange": 128, "loops_light_fine": 64, "loops_strange_fine": 64}
    assert {name: int(rhs) for name, rhs, *_ in rows} == expected
    assert all(float(largest) <= float(tolerance) for _, _, tolerance, largest, _ in rows)


def test_asqtad_links_by_name(quarkline: CommandLine, cluster: str, tmp_path: Path) -> None:
    """The loops of the run are those of the bare stages with the same u0."""
    (tmp_path / "g2.yaml").write_text(TINY)
    fewer = ("configurations: 2", "configurations: 1"), ("  vectors: 4", "  vectors: 2")
    edit(tmp_path / "g2.yaml", ("hisq", "asqtad, u0: 0.87"), *fewer)
    assert quarkline("run", "g2.yaml", "--cluster", cluster).code == 0
    nodes = load_project(tmp_path / "g2.yaml").workflow.nodes
    at = At(config="heatbath-0", noise=(0, 1))
    gauge = heatbath_configuration(at=at, **nodes["configuration"].parameters)
    dslash = asqtad_operator(gauge, at=at, boundary="antiperiodic", u0=0.87)
    expected = current_loops(dslash, at=at, **nodes["loops_light_fine"].parameters).current
    stored = open_result(tmp_path / "store", "loops_light_fine").current.sel(config="heatbath-0")
    np.testing.assert_allclose(stored.values.reshape(expected.shape), expected, rtol=0, atol=1e-7)


@pytest.mark.slow
def test_a_report_is_made_again_only_if_it_or_what_it_was_made_of_has_changed(quarkline, project):
    """First where the store was moved to, then wherever a file, a chunk or the forecast is another."""
    folder = project.parent

    def files() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}

    def told() -> str:
        return quarkline("run", project).out.splitlines()[-1]

    assert told() == f"report: {folder}/report/index.html"
    before = files()
    assert told() == f"report: {folder}/report/index.html (unchanged)"
    assert files() == before
    correlator = (folder / "report/correlator.txt").read_text()
    forecast = folder / "store/.forecasts"
    forecast.mkdir()
    for change in (
        (folder / "report/index.html").unlink,
        partial((folder / "report/correlator.txt").write_text, "edited"),
        partial((folder / "report/.made_of.json").write_text, "[]"),
        partial((forecast / "g2_disconnected.json").write_text, "{}"),
        partial(os.utime, next(folder.glob("store/*configuration/???/*"))),
    ):
        change()
        assert told() == f"report: {folder}/report/index.html", change
    assert told().endswith("(unchanged)")
    assert (folder / "report/correlator.txt").read_text() == correlator


@pytest.mark.slow
def test_a_report_of_another_file_or_set_is_replaced_with_a_warning(quarkline, project):
    """The page is that of the last run, as the next one of the first file says; exports are warned, too."""
    other = project.with_name("other.yaml")
    other.write_text(project.read_text())
    change, folder = ("--set", "analysis.jackknife_bin=1"), project.parent / "report"

    def said(*command: object) -> str:
        answer = quarkline(*command)
        assert answer.code == 0, answer
        return answer.out + answer.err

    assert "replaces" not in said("run", project)
    words = "has the report of `{}`, which that of `{}` replaces: to keep both, add --set report=FOLDER"
    name, changed = project.name, f"{project.name} --set analysis.jackknife_bin=1"
    for command, was, now in (
        (("plan", project, *change), name, changed),
        (("run", project, *change), name, changed),
        (("report", project), changed, name),
        (("export", project, "--to", "csv", *change), name, changed),
        (("plan", other), name, "other.yaml"),
    ):
        assert said(*command).count(f"{folder} {words.format(was, now)}") == 1
    assert "replaces" not in said("run", project)
    assert "replaces" not in said("run", project, *change, "--set", f"report={folder}-1")
    assert folder.with_name("report-1").is_dir()


def test_reports_are_written_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two commands with one folder the second waits, unless the first is stopped."""
    order = []

    def second() -> None:
        with publishing.only_writer(tmp_path):
            order.append("second")

    thread = Thread(target=second)
    with publishing.only_writer(tmp_path):
        thread.start()
        sleep(0.2)
        order.append("first")
    thread.join()
    monkeypatch.setattr(publishing, "PATIENCE", 0.1)
    with publishing.only_writer(tmp_path):
        second()
    assert order == ["first", "second", "second"]


LEFT_OUT = (
    *("cupy", "dask", "distributed", "h5py", "jinja2", "matplotlib", "numba", "pandas", "xarray", "zarr"),
    *("scipy.linalg", "scipy.optimize", "scipy.sparse", "scipy.special"),
)


def test_commands_that_compute_nothing_load_nothing_heavy(quarkline: CommandLine, project: Path) -> None:
    """What they import takes most of their time: seconds, if it is all."""
    assert quarkline("run", project).code == 0
    edit(shutil.copy(project, project.with_name("more.yaml")), ("vectors: 4", "vectors: 8"))
    commands = [["status", "store"], ["plan", "g2.yaml"], ["plan", "more.yaml"], ["run", "g2.yaml"]]
    program = (
        f"import sys; from workflows.command import main\nfor command in {commands}:\n"
        f"    assert main(command) == 0\n"
        f"    assert not (heavy := {{*{LEFT_OUT}}} & {{*sys.modules}}), f'{{command}}: {{heavy}}'"
    )
    subprocess.run([sys.executable, "-c", program], cwd=project.parent, check=True)


@pytest.mark.slow
def test_values_of_a_command_are_files_of_their_own(quarkline, project, cluster):
    """Each has results, a plan, a label in status, the hand-over and gc; without --set all is as before."""
    changed = ("--set", "noise.seed=56", "--set", "report=other")
    answer = quarkline("run", project, *changed, "--cluster", cluster)
    assert answer.code == 0 and "other/index.html" in answer.out, answer.err
    assert "noise.seed=56" in (project.parent / "other" / "index.html").read_text()
    label = f"{project} --set noise.seed=56"
    status, store = quarkline("status", project).out, project.parent / "store"
    assert f"g2_disconnected as run by {label}\n  and before by " in status and "none of this" not in status
    other = quarkline("status", project, "--set", "noise.seed=57").out
    assert f"none of this was run as {project} --set noise.seed=57: `quarkline plan " in other
    assert (
        quarkline("status", "store", "--handover", "page.html", "--json").out.count("--set noise.seed=56") > 1
    )
    assert missing(quarkline, project) == {} and missing(quarkline, project, *changed) == {}
    both = ("g2.yaml", "g2.yaml --set noise.seed=56")
    ours, theirs = (open_result(store, "average", workflow=file) for file in both)
    assert "set" not in ours.attrs and theirs.attrs["set"] == "noise.seed=56"
    assert not np.array_equal(ours.correlator, theirs.correlator)
    assert (
        quarkline("report", project).code == quarkline("export", project, "--set", "noise.seed=56").code == 0
    )
    again = [open_result(store, "average", workflow=file) for file in (project, label)]
    assert again[0].equals(ours) and again[1].equals(theirs)
    for options, code in (((), 0), (("--result", "loops_light"), 0), (("--rounding", "1e-15"), 1)):
        answer = quarkline("compare", project, label, *options)
        assert answer.code == code and ("they differ" in answer.out) == bool(code), answer
    assert quarkline("compare", store, label, "--rounding", "0", "--json").code == 0
    with pytest.raises(
        InputError, match=r"no results of g2.yaml --set noise.seed=57; it has those of:\n  /.*\n  /"
    ):
        open_result(store, "average", workflow="g2.yaml --set noise.seed=57")
    assert f"for {label} as run on" in quarkline("gc", project, "--dry-run").out
    assert "no chunk" in quarkline("gc", project, f"{project} --set noise.seed=56").out
    assert quarkline("gc", project, "--set", "noise.seed=56", "--yes").code == 0
    assert missing(quarkline, project, *changed) == {} and missing(quarkline, project)


@pytest.mark.usefixtures("unreported")
def test_extension_computes_only_what_is_new(quarkline: CommandLine, project: Path, cluster: str) -> None:
    """One more configuration and two more noise vectors: the results of a run from scratch. The report is of
    the file as it is; the first file's is written from what the store still holds.
    """
    page, before = project.parent / "report" / "correlator.txt", chunk_times(project.parent)
    text = page.read_text()
    more = [("configurations: 2", "configurations: 3"), ("vectors: 4\n", "vectors: 6\n")]
    edit(project, *more)
    loops = {"loops_light": 9 - 4, "loops_strange": 9 - 4, "loops_light_fine": 1, "loops_strange_fine": 1}
    expected = {"configuration": 1, "observables": 1, **loops, "correlator": 3, "average": 1}
    assert missing(quarkline, project) == expected
    answer = quarkline("run", project, "--cluster", cluster, "--json")
    result = json.loads(answer.out)
    assert answer.code == 0 and result["states"] == {
        node: {"done": count} for node, count in expected.items()
    }
    after = chunk_times(project.parent)
    assert {path: after[path] for path in before} == before
    assert len(after) == len(before) + sum(expected.values()) and page.read_text() != text
    assert quarkline("run", project, "--cluster", cluster, "--store", "fresh").code == 0
    extended, fresh = (open_result(project.parent / name, "average").load() for name in ("store", "fresh"))
    assert extended.equals(fresh)
    edit(project, *(change[::-1] for change in more))
    assert quarkline("report", project).code == 0 and page.read_text() == text


def test_plan_says_which_parameter_changed(quarkline: CommandLine, project: Path) -> None:
    edit(project, ("light: 0.1", "light: 0.2"), ("precision: double-single", "precision: double"))
    text = quarkline("plan", project).out
    why = {line.split()[0]: line for line in text.splitlines()[2:]}
    assert "19 chunks, 4 in the store, 15 to compute" in text
    assert "changed parameter: mass 0.1 -> 0.2, precision double-single -> double" in why["loops_light"]
    assert "changed parameter: precision double-single -> double" in why["loops_strange"]
    assert "mass" not in why["loops_strange"]
    assert "upstream changed: loops_light" in why["correlator"]
    assert re.search(r"projected: .* per task, .* to store, about .* of work", text)


def test_paths_are_in_no_key_and_an_exact_trace_is_planned_beside_the_estimate(quarkline, project):
    (project.parent / "store").rename(project.parent / "moved")
    edit(project, ("store: store", "store: moved"), ("report: report", "report: elsewhere"))
    assert missing(quarkline, project) == {}

    edit(project, ("report: elsewhere", "report: elsewhere\nexact: true"))
    assert missing(quarkline, project) == {"exact_light": 2, "exact_strange": 2}


@pytest.mark.usefixtures("unreported")
def test_damaged_chunk_is_found_dropped_and_computed_again(quarkline, project, cluster):
    victim = max((project.parent / "store").glob("current_loops/*/*.zarr.zip"))
    victim.write_bytes(victim.read_bytes()[:-3])
    answer = quarkline("verify", project)
    assert answer.code == 1 and "1 damaged" in answer.out
    assert quarkline("verify", "store", "--remove").code == 1
    assert sum(missing(quarkline, project).values()) == 1
    assert quarkline("run", project, "--cluster", cluster).code == 0
    assert quarkline("verify", "store").code == 0


def test_store_and_report_may_be_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "g2.yaml").write_text(TINY)
    file = edit(tmp_path / "g2.yaml", ("store: store", "store: ~/store"), ("report: report", "report: ~/r"))
    project = load_project(file)
    assert (project.store, project.report) == (tmp_path / "home" / "store", tmp_path / "home" / "r")


def test_unreadable_chunk_is_one_message(quarkline: CommandLine, project: Path) -> None:
    for victim in (project.parent / "store").glob("current_loops/*/*.zarr.zip"):
        victim.write_text("{")
    answer = quarkline("export", project, "--result", "loops_light")
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert "is damaged (its file is not whole: File is not a zip file), moved to" in answer.err
    assert f"and 11 more of that stage: `quarkline run {project}` computes what is damaged" in answer.err
    assert len(list(project.parent.glob("store/.damaged/current_loops/*.zarr.zip-????????"))) == 12
    assert sum(missing(quarkline, project).values()) == 12


def cut(place: Path, other: Path) -> None:
    place.write_bytes(place.read_bytes()[:-17])


def empty(place: Path, other: Path) -> None:
    place.write_bytes(b"")


def flip(place: Path, other: Path) -> None:
    content = bytearray(place.read_bytes())
    content[len(content) // 3] ^= 4
    place.write_bytes(content)


def remove(place: Path, other: Path) -> None:
    place.unlink()


def garble(place: Path, other: Path) -> None:
    """A ZIP file that is whole, with a record that is none."""
    with zipfile.ZipFile(place) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(place, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content if name != "zarr.json" else b"{]")


def misplace(place: Path, other: Path) -> None:
    """Another chunk's content: the key in its record is wrong."""
    shutil.copyfile(other, place)


def fold(place: Path, other: Path) -> None:
    """A folder in the place of a file."""
    place.unlink()
    place.mkdir()


DAMAGES = (cut, flip, garble, misplace, empty, remove, fold)


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(1, len(DAMAGES)))]
)
def test_what_only_the_report_reads_is_computed_again(quarkline, project, cluster, first):
    """One chunk of every stage, each damaged in another way, is computed again by one command, only these."""
    store = Store(project.parent / "store")
    before, spoiled = chunk_times(project.parent), set()
    for number, stage in enumerate(store.stages()):
        key = min(store.keys(stage))
        others = {path for path in before if not any(each in path for each in {key, *spoiled})}
        DAMAGES[(first + number) % len(DAMAGES)](store.location(stage, key), Path(min(others)))
        spoiled.add(key)
    assert len(spoiled) >= 5
    answer = quarkline("run", project, "--cluster", cluster)
    assert answer.code == 0 and "Traceback" not in answer.err, answer
    assert verify(store).damaged == () and plan(load_project(project).workflow, store).missing == ()
    after = chunk_times(project.parent)
    assert after.keys() == before.keys()
    changed = {path for path in before if after[path] != before[path]}
    assert changed == {path for path in before if any(key in path for key in spoiled)}
    answer = quarkline("run", project, "--cluster", cluster)
    assert answer.code == 0 and chunk_times(project.parent) == after
    assert quarkline("export", project).code == 0
    page = project.parent / "report" / "index.html"
    assert page.stat().st_mtime_ns > max(after.values())


@pytest.mark.usefixtures("unreported")
def test_a_chunk_that_is_damaged_again_and_again_ends_the_run(quarkline, project, cluster, monkeypatch):
    store = Store(project.parent / "store")
    (key,) = store.keys("ensemble_average")

    def damage(*_: Any) -> Path:
        cut(store.location("ensemble_average", key), Path())
        store.record("ensemble_average", key)
        raise AssertionError

    monkeypatch.setattr("workflows.computing.publish", damage)
    answer = quarkline("run", project, "--cluster", cluster)
    assert answer.code == 2 and f"chunk ensemble_average/{key[:12]}" in answer.err, answer
    assert len(list(project.parent.glob("store/.damaged/*/*.zarr.zip-????????"))) == 1


def test_second_run_computes_nothing_and_status_counts_chunks(quarkline: CommandLine, project: Path) -> None:
    text = quarkline("status", project).out
    assert "no active run" in text
    assert re.search(r"g2_disconnected +loops_light +current_loops +4 +4\n", text)
    found = json.loads(quarkline("status", "store", "--json").out)
    assert found["last_run"]["counts"]["done"] == 19 and found["driver"] is None

    before = chunk_times(project.parent)
    answer = quarkline("run", project)
    assert answer.code == 0
    assert "19 chunks, 19 in the store, 0 to compute" in answer.out
    assert "nothing to compute" in answer.out and "report/index.html\n" in answer.out
    assert chunk_times(project.parent) == before


def test_garbage_is_what_the_file_no_longer_reaches(quarkline, project, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    edit(project, ("strange: 0.3", "strange: 0.4"))
    dropped = 4 + 2 + 2 + 1
    assert f"{dropped} chunks" in quarkline("gc", project, "--dry-run").out
    answer = quarkline("gc", project)
    assert answer.code == 1 and f"g2.yaml as run on {date.today()}: {dropped}" in answer.out
    assert len(chunk_times(project.parent)) == 19
    answer = quarkline("gc", project, "--yes")
    assert answer.code == 0 and f"{dropped} chunks" in answer.out and "removed, 10 kept" in answer.out
    assert len(chunk_times(project.parent)) == 10


@pytest.mark.usefixtures("unreported")
def test_garbage_of_another_file_of_the_same_workflow_is_asked_for(quarkline, project, cluster, monkeypatch):
    other = project.with_name("g2b.yaml")
    other.write_text(project.read_text())
    edit(
        other, ("seed: 55", "seed: 99"), ("  vectors: 4", "  vectors: 2"), ("report: report", "report: other")
    )
    assert quarkline("run", other, "--cluster", cluster).code == 0
    before = chunk_times(project.parent)
    lost = len(before) - 19
    answer = quarkline("gc", project, "--dry-run")
    assert answer.code == 0 and f"g2b.yaml as run on {date.today()}: {lost}" in answer.out
    content = json.loads(quarkline("gc", project, "--json").out)
    assert f"g2b.yaml as run on {date.today()} would be dropped" in content["error"]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert quarkline("gc", project).code == 1 and chunk_times(project.parent) == before
    assert "no chunk removed" in quarkline("gc", project, other).out
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    answer = quarkline("gc", project)
    assert answer.code == 0 and len(chunk_times(project.parent)) == 19, answer


def test_export_holds_what_the_store_holds(quarkline: CommandLine, project: Path) -> None:
    answer = quarkline("export", project, "--output", "out", "--result", "average", "--result", "correlator")
    assert answer.code == 0
    names = {f"{name}.{end}" for name in ("average", "correlator") for end in ("h5", "zarr")}
    assert {path.name for path in (project.parent / "out").iterdir()} == names
    data = open_result(project.parent / "store", "correlator")
    with h5py.File(project.parent / "out" / "correlator.h5") as file:
        np.testing.assert_array_equal(file["correlator"][()], data.correlator)
        assert list(file["correlator"].attrs["dims"]) == ["config", "flavour", "time"]
        assert [label.decode() for label in file["config"][()]] == ["heatbath-0", "heatbath-1"]
        assert tuple(label.decode() for label in file["flavour"][()]) == FLAVOURS
    group = zarr.open_group(project.parent / "out" / "correlator.zarr", mode="r")
    np.testing.assert_array_equal(group["correlator"][...], data.correlator)
    exported = xarray.open_zarr(project.parent / "out" / "correlator.zarr", consolidated=False)
    np.testing.assert_array_equal(
        exported.loops.sel(flavour="strange", direction="z"), data.loops.values[:, 1, 2]
    )


def test_report_says_which_configurations_fill_no_bin(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five in bins of two."""
    assert "averaged over 2 configurations with" in (project.parent / "report" / "index.html").read_text()
    bins = ("report: report", "report: report\nanalysis: {jackknife_bin: 2}")
    made = load_project(edit(project, ("configurations: 2", "configurations: 5"), bins))
    assert made.workflow.nodes["average"].parameters["jackknife_bin"] == 2
    average, observed = SimpleNamespace(statistics=lambda _: [4]), SimpleNamespace(sizes={"config": 5})
    monkeypatch.setattr(report, "node_of", lambda *_: average)
    monkeypatch.setattr(report, "open_result", lambda *_, **__: observed)
    said = report._configurations(Store(project.parent / "store"), made.parameters)
    assert said == "4 of 5 configurations (the rest fills no jackknife bin)"


def test_a_run_that_has_not_begun_has_no_report(quarkline: CommandLine, project: Path) -> None:
    edit(project, ("light: 0.1", "light: 0.2"), ("seed: 977", "seed: 978"))
    for command in ("report", "export"):
        answer = quarkline(command, project)
        assert answer.code == 1 and "19 chunks missing in" in answer.err and "error: " in answer.err


@pytest.mark.slow
def test_exact_trace_agrees_with_the_estimate(quarkline: CommandLine, project: Path, cluster: str) -> None:
    """The noisy loops lie around the exact ones by as much as their errors say."""
    edit(project, ("report: report", "report: report\nexact: true"))
    assert quarkline("run", project, "--cluster", cluster).code == 0
    estimate = open_result(project.parent / "store", "correlator")
    for flavour, name in enumerate(FLAVOURS[:2]):
        exact = open_result(project.parent / "store", f"exact_{name}")
        pulls = (estimate.condensate[:, flavour] - exact.condensate) / estimate.condensate_error[:, flavour]
        assert float(abs(pulls).max()) < 8
    assert "Distance from the exact trace" in (project.parent / "report" / "tables.txt").read_text()


@pytest.mark.usefixtures("unreported")
def test_time_limit_ends_with_its_own_code_and_goes_on(quarkline, project, cluster):
    edit(project, ("sweeps: 3", "sweeps: 900"), ("report: report", "report: late"))
    answer = quarkline("run", project, "--cluster", cluster, "--time-limit", "00:00:01")
    assert answer.code == 3
    assert "stopped by time limit of 1 s" in answer.out and not (project.parent / "late").exists()
    edit(project, ("sweeps: 900", "sweeps: 3"))
    assert quarkline("run", project, "--cluster", cluster).code == 0
