"""Mutated files of every format that is read: refused in words, or read as they were written."""

from __future__ import annotations

from pathlib import Path

import healthy
import pytest
from outcomes import NEVER, Outcome, Tally, fuzz, write_row

GAUGE = ["DDalphaAMG", "ILDG", "MILC v5", "NERSC, 2 rows", "NERSC, 3 rows", "SciDAC links", "openQCD"]
FIELDS = ["SciDAC field, matrices", "SciDAC field, vectors", "source (NumPy)"]
SHORT, LONG = 150, 100_000


@pytest.mark.parametrize("name", [*GAUGE, *FIELDS])
def test_mutated_files(tmp_path: Path, name: str) -> None:
    judged(name, tally_of(tmp_path, name, SHORT, seed=5219))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [*GAUGE, *FIELDS])
def test_many_mutated_files(tmp_path: Path, name: str) -> None:
    tally = tally_of(tmp_path, name, LONG, seed=31)
    write_row(name, tally)
    judged(name, tally)


def tally_of(folder: Path, name: str, count: int, seed: int) -> Tally:
    """Outcomes of mutations of the file of that name."""
    (folder / "healthy").mkdir()
    makers = healthy.gauge_formats if name in GAUGE else healthy.field_formats
    form = next(form for form in makers(folder / "healthy") if form.name == name)
    return fuzz(form.shape, form.read, form.judge, folder, count, seed)


def judged(name: str, tally: Tally) -> None:
    """Nothing that must never occur; changed numbers only where the format cannot tell."""
    faults = [sample for outcome in NEVER for sample in tally.samples.get(outcome, {})]
    assert not faults, faults
    if name not in ("DDalphaAMG", "openQCD", "source (NumPy)"):
        assert not tally.counts[Outcome.CHANGED], list(tally.samples[Outcome.CHANGED])
    assert tally.counts[Outcome.REFUSED] and tally.counts[Outcome.IDENTICAL]
