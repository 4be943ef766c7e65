"""The benchmark's figures are consistent with each other and with the traffic models of the literature."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tiny_project import CommandLine

from pipeline.running.clusters.choose import choose
from stages.base.errors import InputError
from stages.lqcd.lattice.geometry import Lattice
from workflows.benchmarks import end_to_end, machine, staggered
from workflows.benchmarks.families import FAMILIES, bench_of, speeds
from workflows.benchmarks.ledger import read_ledger
from workflows.benchmarks.speed import Bench, SiteCost, _seconds, streaming

SMALL = ("--lattice", "4", "4", "4", "4", "--rhs", "2,3")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Measured only as long as a test needs."""
    monkeypatch.setattr(machine, "HOST_SECONDS", 1e-3)
    monkeypatch.setattr(machine, "HOST_COPY_BYTES", 1 << 16)
    monkeypatch.setattr(machine, "DEVICE_COPY_BYTES", 1 << 20)
    return request.param


@pytest.mark.parametrize(
    ("rhs", "itemsize", "perfect", "naive"),
    [(16, 8, 1152 / 16 + 48, 1152 / 16 + 408), (1, 16, 2304 + 96, 2304 + 816)],
)
def test_traffic_models_of_the_dslash(rhs: int, itemsize: int, perfect: float, naive: float) -> None:
    """Links 16 x 9, neighbours once or 16 times, one result."""
    assert staggered.dslash_cost(rhs, itemsize) == SiteCost(1146, perfect, naive)


def test_models_of_the_dslash_and_costs() -> None:
    """In half precision a fat and a long link have 64 bytes and vectors 16; long links are unitary."""
    assert staggered.half_cost(4) == SiteCost(1146, 128 + 2 * 16, 128 + 17 * 16)

    _, links = staggered.random_links(machine.Host(), Lattice((4, 4, 4, 6)))
    product = links @ links.conj().swapaxes(-1, -2)
    assert np.allclose(product, np.eye(3), atol=100 * np.finfo(float).eps)

    field = streaming(24, 2, np.dtype(np.complex64))
    assert field + field == 2 * field == SiteCost(48, 96, 96)

    rng = np.random.default_rng(5)
    u, v = rng.normal(size=(7, 3, 3)) + 1j, rng.normal(size=(7, 3, 4)) - 2j
    for product in staggered.PRODUCTS:
        assert np.allclose(product(u, v), u @ v, rtol=1e-14)


def small_bench() -> Bench:
    lattice = Lattice((4, 4, 4, 6))
    return Bench(machine.Host(), lattice, lattice, (2,), ("single",), copy_bandwidth=50.0)


def test_figures_of_a_line_follow_from_its_time() -> None:
    names = {"family": "f", "kernel": "k", "precision": "single", "unit": "application", "lattice": "4x4x4x6"}
    speed = small_bench().speed(2e-6, 0.5, SiteCost(1146, 100, 130), sites=200, rhs=5, **names)
    assert speed.picoseconds == pytest.approx(2000)
    assert speed.gflops == pytest.approx(573)
    assert speed.perfect_reuse_bandwidth == pytest.approx(50)
    assert speed.fraction_of_copy == pytest.approx(1)
    assert speed.naive_bandwidth == pytest.approx(65)
    cells = [cell.strip() for cell in speed.row(None).strip("|").split("|")]
    assert cells == ["f", "k", "4x4x4x6", "single", "5", "2 ns", "573", "50.0", "65.0", "1.00", "0.5 J", "-"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.21e-11, "42.1 ps"), (2e-9, "2 ns"), (3.5e-6, "3.5 us"), (0.0057, "5.7 ms"), (2, "2 s")],
)
def test_times_have_a_unit_with_few_digits(seconds: float, text: str) -> None:
    assert _seconds(seconds) == text


@pytest.mark.slow
def test_every_family_is_measured(quarkline: CommandLine, backend: str) -> None:
    families = [name for name in FAMILIES if name != "end-to-end"]
    answer = quarkline("bench", "--backend", backend, *SMALL, "--only", ",".join(families), "--json")
    assert answer.code == 0, answer.err
    result = json.loads(answer.out)
    lines = result["lines"]
    assert result["backend"] == backend and result["copy_bandwidth"] > 0
    assert list(dict.fromkeys(line["family"] for line in lines)) == families
    for line in lines:
        assert line["picoseconds"] > 0 and line["gflops"] > 0
        assert line["fraction_of_copy"] == pytest.approx(
            line["perfect_reuse_bandwidth"] / result["copy_bandwidth"]
        )
        assert line["naive_bandwidth"] >= line["perfect_reuse_bandwidth"]
        assert backend == "cuda" or line["joules"] is None
    measured = {(line["kernel"], line["precision"], line["rhs"]) for line in lines}
    assert {("BlockCGrQ", "double-single", 3), ("hisq_dslash", "double", 2)} <= measured
    assert answer.err.count("\n") == len(lines) + 4  # the table, for who watches


def test_end_to_end_run_gives_its_own_time_and_that_of_its_solves(backend, cluster, monkeypatch):
    if backend == "cpu":
        monkeypatch.setattr(end_to_end, "choose", lambda *_, **__: choose(cluster))
    bench = bench_of(backend, (4, 4, 4, 4), None, ["single"])
    whole, solves = speeds(bench, ["end-to-end"])
    assert whole.rhs == solves.rhs == 2 * 2 * 2 * 16  # configurations, masses, vectors, subsets
    assert 0 < solves.seconds < whole.seconds


def test_nothing_to_measure_is_an_error_and_what_is_asked_for_twice_is_measured_once(quarkline, backend):
    answer = quarkline("bench", "--backend", backend, *SMALL, "--only", "blas", "--precision", "half")
    assert answer.code == 2 and f"{backend} has no half precision of blas" in answer.err
    assert "give --precision single, double or both" in answer.err

    twice = ("--rhs", "2,2", "--only", "blas,blas", "--precision", "single,single")
    answer = quarkline("bench", "--backend", backend, "--lattice", "4", "4", "4", "4", *twice, "--json")
    kernels = [line["kernel"] for line in json.loads(answer.out)["lines"]]
    assert len(kernels) == len(set(kernels))


def test_fields_larger_than_the_memory_at_hand_are_not_made(quarkline, monkeypatch):
    monkeypatch.setattr(machine, "HOST_COPY_BYTES", 1 << 16)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=90_000_000))
    answer = quarkline("bench", "--lattice", "16", "16", "16", "16", "--rhs", "64", "--only", "blas")
    assert answer.code == 2 and "blas does not fit into memory on 16x16x16x16 with 64" in answer.err
    assert "(0.1 GB are needed next, 0.1 GB are free)" in answer.err


def test_short_memory_says_what_to_change(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(bench: Bench) -> None:
        raise MemoryError("Unable to allocate 3 TiB")

    monkeypatch.setitem(FAMILIES, "dslash", exhausted)
    with pytest.raises(
        InputError, match=r"dslash does not fit into memory on 4x4x4x4 with 9 .*smaller --lattice"
    ):
        list(speeds(bench_of(backend, (4, 4, 4, 4), [9], ["single"]), ["dslash"]))


def test_every_step_of_a_counter_is_seen() -> None:
    moves = map(float, count())
    with machine.watched([lambda: next(moves), lambda: 5.0]) as (moving, still):
        while len(moving) < 4:
            time.sleep(machine.LOOK)
    assert [joules for _, joules in moving[:4]] == [0, 1, 2, 3] and len(still) == 1
    assert moving == sorted(moving)


def figures(tmp_path: Path, name: str, *picoseconds: float, machine_name: str | None = None) -> Path:
    """A file of documents, one behind the other, each with one line of the small bench."""
    names = {"family": "f", "kernel": "k", "precision": "single", "unit": "application", "lattice": "4x4x4x6"}
    line = small_bench().speed(2e-6, None, SiteCost(1, 1, 1), sites=200, rhs=5, **names)
    machine_name = machine_name or machine.Host().name
    documents = (
        {"machine": machine_name, "lines": [asdict(replace(line, picoseconds=each))]} for each in picoseconds
    )
    file = tmp_path / name
    file.write_text("\n".join(json.dumps(document, indent=2) for document in documents))
    return file


@pytest.mark.parametrize(("earlier", "slower"), [((9.0, 2000.0), False), ((9.0, 1904.0), True)])
def test_lines_are_compared_with_the_last_figures(tmp_path, earlier, slower):
    ledger = read_ledger(figures(tmp_path, "ledger.json", *earlier), machine.Host())
    names = {"family": "f", "kernel": "k", "precision": "single", "unit": "application", "lattice": "4x4x4x6"}
    now = small_bench().speed(2e-6, None, SiteCost(1, 1, 1), sites=200, rhs=5, **names)
    new = replace(now, rhs=6)
    assert ledger.ratio(now) == pytest.approx(2000 / earlier[-1]) and ledger.ratio(new) is None
    words, found = ledger.verdict([now, new])
    assert found is slower and "1 lines compared" in words and "1 are new" in words
    assert ("f k, single, 5 right-hand sides: 1.050 times" in words) is slower
    with pytest.raises(InputError, match="no line of what was measured here"):
        ledger.verdict([new])


def test_slower_lines_end_the_command_with_code_1(quarkline, tmp_path, backend):
    asked = ("--backend", backend, *SMALL, "--only", "blas", "--precision", "single")
    document = json.loads(quarkline("bench", *asked, "--json").out)
    file = tmp_path / "figures.json"
    for factor, code in ((1e-6, 1), (1e6, 0)):
        scaled = [line | {"picoseconds": line["picoseconds"] * factor} for line in document["lines"]]
        file.write_text(json.dumps(document | {"lines": scaled}))
        answer = quarkline("bench", *asked, "--against", str(file))
        assert answer.code == code and f"{len(scaled)} lines compared with {file}" in answer.out
        assert " ratio |" in answer.out


def test_lines_of_several_documents_add_up(tmp_path: Path) -> None:
    file = figures(tmp_path, "ledger.json", 9.0, 2000.0)
    (line,) = json.JSONDecoder().raw_decode(file.read_text())[0]["lines"]
    other = {"machine": machine.Host().name, "lines": [line | {"rhs": 6, "picoseconds": 5.0}]}
    file.write_text(file.read_text() + json.dumps(other))
    assert sorted(read_ledger(file, machine.Host()).times.values()) == [5.0, 2000.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"picoseconds": math.nan},
        {"picoseconds": math.inf},
        {"picoseconds": "5"},
        {"lattice": [4, 4, 4, 6]},
    ],
)
def test_figures_that_are_none_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    file = figures(tmp_path, "ledger.json", 9.0)
    document = json.loads(file.read_text())
    document["lines"][0] |= wrong
    file.write_text(json.dumps(document))
    (value,) = wrong.values()
    with pytest.raises(InputError, match=rf"of a line are .*{re.escape(repr(value))}"):
        read_ledger(file, machine.Host())


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be read"),
        ("", "is empty: fill it by quarkline bench --json"),
        ("[1]", "is not what `quarkline bench --json` prints"),
        ("[" * 100_000, "is not what `quarkline bench --json` prints"),
        ("null", "has no name of a machine"),
        ('{"machine": 5, "lines": []}', "has no name of a machine"),
        ('{"schema": "quarkline.error/1", "error": {}}', "has no name of a machine"),
        ('{"machine": "a", "lines": {}}', "has no list of lines"),
        ('{"machine": "a", "lines": [3]}', "a line lacks"),
        ('{"machine": "a", "lines": [{"family": "f"}]}', "a line lacks"),
        ('{"machine": "a Cray-1", "lines": []}', "has figures of a Cray-1, and this machine is"),
    ],
)
def test_files_that_are_no_figures_of_this_machine_are_refused(quarkline, tmp_path, content, complaint):
    file = tmp_path / "figures.json"
    if content is not None:
        file.write_text(content)
    answer = quarkline("bench", *SMALL, "--only", "blas", "--against", str(file))
    assert answer.code == 2 and complaint in " ".join(answer.err.replace("│", " ").split())
