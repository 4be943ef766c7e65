"""`--check`: every chunk of the tiny workflows on the second path, and what a run says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_hisq_mesons import HISQ_MESONS
from tiny_mesons import MESONS
from tiny_project import TINY, CommandLine

from pipeline import InputError, Store, status
from pipeline.worker.checks import Checks

G2 = TINY.replace("solves:", "estimator: {difference: split_even}\nsolves:")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "stages"),
    [
        (TINY, {"current_loops": 12}),
        (G2, {"split_even_loops": 6}),
        (MESONS, {"meson_two_point": 4}),
        (HISQ_MESONS, {"staggered_two_point": 4}),
    ],
    ids=["g2", "split_even", "mesons", "hisq_mesons"],
)
def test_all_chunks_with_solves_agree_with_the_second_path(text, stages, quarkline, cluster):
    Path("all.yaml").write_text(text)
    answer = quarkline("run", "all.yaml", "--cluster", cluster, "--check", "1")
    assert answer.code == 0, answer.out + answer.err
    store = Store("store")
    for stage, number in stages.items():
        records = [store.record(stage, key) for key in store.keys(stage)]
        assert sum(record["checks"]["repeated"] for record in records) == number == len(records)
    said = f"checked: a part of {sum(stages.values())} chunks recomputed, all checksums compared"
    assert said in answer.out
    assert said in str(status(store))
    page = Path("report/index.html").read_text()
    assert (
        "Checks against silent errors" in page and f"A part of {sum(stages.values())} of the chunks" in page
    )


@pytest.mark.slow
def test_none_is_said(quarkline: CommandLine, cluster: str, project: Path) -> None:
    answer = quarkline("run", project, "--cluster", cluster, "--check", "0", "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["checks"] == {"repeated": 0, "disagreed": 0, "retracted": 0}


@pytest.mark.parametrize(
    ("options", "share"), [((), 0.01), (("--check", "0.25"), 0.25), (("--check", "0"), 0)]
)
def test_a_run_repeats_the_share_that_was_asked_for(quarkline, monkeypatch, options, share):
    asked: list[Checks] = []

    def run(*_: object, checks: Checks, **__: object) -> None:
        asked.append(checks)
        raise InputError("that is enough")

    monkeypatch.setattr("workflows.computing.run", run)
    Path("g2.yaml").write_text(TINY)
    assert "that is enough" in quarkline("run", "g2.yaml", *options).err
    assert [each.fraction for each in asked] == [share]


@pytest.mark.parametrize("share", ["2", "-1", "often", "nan"])
def test_a_share_that_is_none_is_refused(quarkline: CommandLine, project: Path, share: str) -> None:
    answer = quarkline("run", project, f"--check={share}")
    assert answer.code == 2 and answer.out == ""
    assert f"'{share}' is no share: give a number from 0 to 1" in answer.err
