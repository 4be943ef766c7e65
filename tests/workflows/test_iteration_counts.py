"""The table of iterations: every cell of the parts asked for; stopped solves scaled, without a residual."""

from __future__ import annotations

import sys

import pytest

import iteration_counts

ARGUMENTS = (
    *("--lattice", "4", "4", "4", "4", "--sweeps", "2", "--mass", "0.2", "--rhs", "2", "3"),
    *("--vectors", "0", "2", "--block", "3", "--only", "batched/double", "block", "--seconds", "1e-6"),
)


@pytest.mark.slow
def test_table_of_iterations(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["iteration_counts", *ARGUMENTS])
    monkeypatch.setattr(iteration_counts, "TRIAL", 3)
    iteration_counts.main()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert lines[0] == "| vectors | N | batched, double | block, double | block, double-single |"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert [row[:2] for row in rows] == [["0", "2"], ["0", "3"], ["2", "2"], ["2", "3"]]
    for first, second in (rows[:2], rows[2:]):
        assert second[2].startswith(f"{first[2].split()[0]} (~") and second[2].endswith("; -)")
        for cell in (*first[2:], *second[3:]):
            iterations, rest = cell.split(" (")
            assert 3 < int(iterations) < 1000 and 0 < float(rest.split("; ")[1].rstrip(")")) <= 1e-10
