"""Mutated parameter files of all workflows: refused in words with a remedy, or loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from outcomes import NEVER, Outcome, Tally, fuzz, write_row

from mutations import Shape
from workflows.catalogue import load_project

FILES = sorted((Path(__file__).parents[2] / "workflows").glob("*.yaml"))
SHORT, LONG = 25, 25_000


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_mutated_parameter_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    judged(tally_of(tmp_path, monkeypatch, file, SHORT, seed=871))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_many_mutated_parameter_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    tally = tally_of(tmp_path, monkeypatch, file, LONG, seed=29)
    write_row(file.name, tally)
    judged(tally)


def tally_of(folder: Path, monkeypatch: pytest.MonkeyPatch, file: Path, count: int, seed: int) -> Tally:
    """Outcomes of mutations of a file, loaded in an empty folder."""
    monkeypatch.chdir(folder)
    content = file.read_bytes()
    return fuzz(
        Shape(content, len(content), text=True),
        load_project,
        lambda _: Outcome.IDENTICAL,
        folder,
        count,
        seed,
    )


def judged(tally: Tally) -> None:
    """Nothing that must never occur."""
    faults = [sample for outcome in NEVER for sample in tally.samples.get(outcome, {})]
    assert not faults
    assert tally.counts[Outcome.REFUSED] and tally.counts[Outcome.IDENTICAL]
