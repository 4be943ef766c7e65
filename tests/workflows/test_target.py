"""A target instead of counts, through the command line: rounds, resuming, limits, what people are told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tiny_project import TINY, CommandLine, edit, refused, runs_of

from pipeline import Store, open_result, verify

TARGETED = (
    TINY.replace("  vectors: 4\n  chunk: 2\n", "  chunk: 4\n")
    .replace("{tolerance: 1.0e-3}", "{tolerance: 3.0e-2}")
    .replace("{tolerance: 1.0e-10, vectors: 2}", "{tolerance: 1.0e-10}")
    + "target: {loops: 0.3}\n"
)


ran, targeted = runs_of("g2", TARGETED)


def chunks(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.glob("store/[!.]*/???/*")}


def test_rounds_meet_the_target(targeted: Path) -> None:
    """Achieved error below the target and near it, counts in whole chunks, predictions of the right size."""
    found = open_result(targeted.parent / "store", "allocation").load()
    vectors = found.vectors.values
    assert len(vectors) > 1 and vectors[0].tolist() == [8, 4]
    assert np.all(np.diff(vectors, axis=0) >= 0) and np.all(vectors % 4 == 0)
    assert found.error[0] > 0.3 >= found.error[-1] > 0.18
    assert float(found.error[-1] / found.predicted_error[-1]) == pytest.approx(1.0, abs=0.3)
    loops = open_result(targeted.parent / "store", "loops_light")
    assert loops.sizes["noise"] == vectors[-1, 0]
    noise = open_result(targeted.parent / "store", "noise").load()
    quoted = noise.loops_error.sel(flavour="light - strange").values
    assert float(found.error[-1]) == pytest.approx(np.sqrt(np.mean(quoted**2)), rel=1e-12)
    assert float(found.mean_error) == pytest.approx(float(found.error[-1]) / np.sqrt(2), rel=1e-12)


def test_a_finished_run_does_nothing_and_people_are_told(quarkline: CommandLine, targeted: Path) -> None:
    before = chunks(targeted.parent)
    answer = quarkline("run", targeted)
    assert answer.code == 0 and "nothing to compute" in answer.out
    assert re.search(
        r"round 1, 8 noise vectors, 4 fine: error \S+, target 3.00e-01: next \d+ noise", answer.out
    )
    assert re.search(r"round \d, .* target met\n", answer.out)
    assert "no chunk removed" in quarkline("gc", targeted).out  # every round is kept
    table = r"round +noise vectors +fine +predicted error +achieved error +predicted seconds +seconds"
    assert re.search(table, quarkline("status", "store").out)
    assert re.search(table, (targeted.parent / "report" / "tables.txt").read_text())
    page = (targeted.parent / "report" / "index.html").read_text()
    assert "<h2>Target</h2>" in page and "target 3.00e-01; met" in page
    plan = json.loads(quarkline("plan", targeted, "--json").out)
    assert plan["missing"] == [] and "target met" in plan["rounds"][-1]
    assert json.loads(quarkline("run", targeted, "--json").out)["target_met"] is True
    assert chunks(targeted.parent) == before


@pytest.mark.usefixtures("unreported")
def test_interrupted_round_is_resumed(quarkline: CommandLine, targeted: Path, cluster: str) -> None:
    """What a kill in the second round leaves: the same decisions lead to the same chunks."""
    everything = chunks(targeted.parent)
    last = open_result(targeted.parent / "store", "allocation").load()
    store = Store(targeted.parent / "store")
    for key in store.keys("trace_allocation"):
        if store.record("trace_allocation", key)["parameters"]["earlier"]:
            store.remove("trace_allocation", key)
    lost = max(store.keys("current_loops"))
    pilots_own = max(store.record("current_loops", lost)["coordinates"]["noise"]) < 8
    if not pilots_own:
        store.remove("current_loops", lost)
    plan = quarkline("plan", targeted)
    assert "round 1, " in plan.out and " 0 to compute" not in plan.out
    status = quarkline("status", targeted).out
    assert "predicted error" in status
    assert quarkline("run", targeted, "--cluster", cluster).code == 0
    assert chunks(targeted.parent) == everything
    again = open_result(targeted.parent / "store", "allocation").load()
    assert again.vectors.equals(last.vectors) and np.array_equal(again.error, last.error)


@pytest.mark.usefixtures("unreported")
def test_damage_in_what_decides_on_a_round_is_computed_again(quarkline, targeted, cluster):
    """Decisions are read before there is a run; commands that only look say so, and remove nothing."""
    everything = chunks(targeted.parent)
    store = Store(targeted.parent / "store")
    for key in store.keys("trace_allocation"):
        place = store.location("trace_allocation", key)
        place.write_bytes(place.read_bytes()[:-17])
    answer = quarkline("gc", targeted)
    assert answer.code == 2 and "is damaged" in answer.err and chunks(targeted.parent) == everything
    answer = quarkline("run", targeted, "--cluster", cluster)
    assert answer.code == 0 and "Traceback" not in answer.err, answer
    assert chunks(targeted.parent) == everything and not verify(store).damaged


@pytest.mark.slow
def test_limit_is_said_and_nothing_lost(quarkline: CommandLine, targeted: Path, cluster: str) -> None:
    edit(targeted, ("{loops: 0.3}", "{loops: 1.0e-4, most_vectors: 9}"))
    answer = quarkline("run", targeted, "--cluster", cluster)
    assert answer.code == 1 and "Traceback" not in answer.err
    assert "target not met within `target.most_vectors` = 9; raise it" in answer.out
    assert "report/index.html" in answer.out
    assert "; not met" in (targeted.parent / "report" / "index.html").read_text()
    edit(targeted, ("{loops: 1.0e-4, most_vectors: 9}", "{loops: 0.3}"))
    assert quarkline("run", targeted, "--cluster", cluster).code == 0


@pytest.mark.slow
def test_ratio_and_correlator_are_targets_too(quarkline: CommandLine, targeted: Path, cluster: str) -> None:
    edit(targeted, ("{loops: 0.3}", "{stochastic_to_gauge: 1.0e+6, window: [0, 2], most_vectors: 16}"))
    answer = quarkline("run", targeted, "--cluster", cluster)
    assert ("of the gauge noise, target 1e+06: target met" in answer.out) or ("hides the gauge" in answer.out)
    ratio = "{stochastic_to_gauge: 1.0e+6, window: [0, 2], most_vectors: 16}"
    edit(targeted, (ratio, "{correlator: 1.0e+6, window: [1, 2]}"))
    answer = quarkline("run", targeted, "--cluster", cluster)
    assert answer.code == 0 and "target 1.00e+06: target met" in answer.out


MODES = "deflation: {vectors: 12, block: 4, tolerance: 1.0e-10}\nestimator: {low_modes: true}\n"


def with_modes(file: Path) -> Path:
    """A light mass, low modes, and a pilot with 2, 6 and all 12 eigenvectors."""
    file.write_text(TARGETED)
    target = ("{loops: 0.3}", "{loops: 0.05, eigenvectors: [2, 6]}")
    return edit(file, ("{light: 0.1,", "{light: 0.02,"), target, ("noise:\n", f"{MODES}noise:\n"))


def test_pilot_tries_every_number_of_eigenvectors(quarkline: CommandLine, tmp_path: Path) -> None:
    plan = json.loads(quarkline("plan", with_modes(tmp_path / "g2.yaml"), "--json").out)
    nodes = [chunk["node"] for chunk in plan["missing"]]
    assert nodes.count("deflation_space") == 2
    for suffix in ("", "_2", "_6"):
        assert nodes.count(f"allocation{suffix}") == 1 and nodes.count(f"noise{suffix}") == 2
    edit(tmp_path / "g2.yaml", ("[2, 6]", "[2, 13]"))
    answer = quarkline("plan", "g2.yaml")
    assert answer.code == 2 and "13, but `deflation.vectors` is 12" in answer.err


@pytest.mark.slow
def test_rounds_go_on_with_the_cheapest_number(quarkline: CommandLine, tmp_path: Path, cluster: str) -> None:
    """Which one is the cheapest is for the clock to say; the rounds after the pilot have that one alone."""
    answer = quarkline("run", with_modes(tmp_path / "g2.yaml"), "--cluster", cluster)
    assert answer.code == 0 and "target met" in answer.out
    allocation = open_result(tmp_path / "store", "allocation", workflow="g2_disconnected")
    decisions = allocation.attrs["parameters"]["earlier"]
    assert decisions and decisions[0]["eigenvectors"] in (None, 2, 6)
    assert len({decision["eigenvectors"] for decision in decisions}) == 1
    modes = open_result(tmp_path / "store", "low_modes").sizes["eigenvector"]
    assert modes == (decisions[0]["eigenvectors"] or 12)
    assert quarkline("run", "g2.yaml").code == 0


def test_targets_of_one_configuration_and_of_none(quarkline: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "g2.yaml").write_text(TARGETED)
    file = edit(tmp_path / "g2.yaml", ("configurations: 2", "configurations: 1"))
    assert quarkline("plan", file).code == 0
    edit(file, ("{loops: 0.3}", "{stochastic_to_gauge: 0.5}"))
    refused(
        quarkline("plan", file),
        "`target.stochastic_to_gauge` (line 19): one configuration has no gauge noise",
    )
    file = tmp_path / "g2.yaml"
    file.write_text(TINY)
    plain = quarkline("plan", file, "--json")
    file.write_text(TINY + "target:\n")
    assert quarkline("plan", file, "--json") == plain and plain.code == 0
