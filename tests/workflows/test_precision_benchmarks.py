"""Tables of the scripts that compare precisions: every cell."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hisq_solves
import mixed_precision
import truncated_solver
from mixed_iterations import METHODS, columns
from script import metered
from truncated_solver import Measured

Table = Callable[..., list[list[list[str]]]]


@pytest.fixture
def tables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Table:
    """The rows of the tables that a script prints, without headings."""

    def run(main: Callable[[], None], *arguments: str) -> list[list[list[str]]]:
        monkeypatch.setattr(sys, "argv", ["script", *arguments])
        main()
        found, inside = list[list[list[str]]](), False
        for line in capsys.readouterr().out.splitlines():
            if not line.startswith("|"):
                inside = False
            elif line.startswith("| ---"):
                found.append([])
                inside = True
            elif inside:
                found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        return found

    return run


def test_every_form_has_a_column() -> None:
    for method in METHODS:
        assert len({name for name, _ in columns(method, 1e-8, 10)}) == 13


def test_least_vectors_of_each_piece() -> None:
    """With a correction a hundredth of the noise, two fine vectors do, and cheap loose solves pay."""
    rng = np.random.default_rng(29)
    noise = rng.normal(size=(64, 4, 8))
    tight = Measured(1e-9, noise, 2.0, 200)
    loose = Measured(1e-5, noise + 0.001 * rng.normal(size=noise.shape), 1.0, 100)
    error = 1 / 16
    alone = truncated_solver._cheapest((tight,), truncated_solver._covariance((tight,)), error)
    both = (loose, tight)
    pair = truncated_solver._cheapest(both, truncated_solver._covariance(both), error)
    assert alone.cost == pytest.approx(2 * 256, rel=0.2)
    assert pair.counts == (pytest.approx(alone.counts[0], abs=2), truncated_solver.FEWEST)
    assert alone.cost / pair.cost == pytest.approx(2, rel=0.05)


def test_a_metered_call_returns_what_it_makes() -> None:
    result, joules = metered("cpu", lambda: 7)
    assert result == 7 and (joules is None or joules >= 0)


@pytest.mark.slow
def test_tables_of_mixed_precision(tables: Table, tmp_path: Path) -> None:
    lattice = ("--lattice", "4", "4", "4", "4", "--sweeps", "2", "--mass", "0.3", "0.2")
    picture = tmp_path / "time.svg"
    found = tables(mixed_precision.main, *lattice, "--plot", str(picture))
    times, rates, memory, bicgstab, cg, errors, roofline = found
    assert [row[:3] for row in times[:6]] == [["0.3", *each] for each in mixed_precision.SOLVES]
    assert all(int(row[3]) > 3 and float(row[-1]) <= 1e-8 for row in times)
    assert [row[0] for row in rates] == ["double", "double-single", "double-half"]
    assert all(float(cell) > 0 for row in rates for cell in row[1:])
    assert len(memory) == 6 and all(float(cell) > 0 for row in memory for cell in row[2:])
    assert all(int(cell) > 3 for row in (*bicgstab, *cg) for cell in row[1:])
    assert len(errors) == 6 and all(sorted(map(float, row[5:])) == [*map(float, row[5:])] for row in errors)
    assert [row[:2] for row in roofline] == [[*each] for each in mixed_precision.SOLVES]
    assert all(float(row[-3]) >= 1 for row in roofline)  # by bytes, fewer numbers gain
    assert "<svg" in picture.read_text()


@pytest.mark.slow
def test_table_of_the_truncated_solver(tables: Table) -> None:
    lattice = ("--lattice", "4", "4", "4", "4", "--sweeps", "2", "--mass", "0.5")
    options = ("--vectors", "4", "--rhs", "16", "--most", "32", "--precision", "double", "double-half")
    (rows,) = tables(truncated_solver.main, *lattice, *options)
    assert [row[0] for row in rows] == ["double"] * 2 + ["double-half"] * 2
    assert [row[1] for row in rows[:2]] == ["2e-09", "5e-06 + 2e-09"]
    assert rows[0][-1] == "1" and rows[0][5] == "-"
    assert all(0 < float(row[5]) < 1e-4 for row in rows[1::2])


def test_light_masses_are_solved_from_every_source(tables: Table) -> None:
    arguments = ["--light", "4", "--masses", "0.0005", "--only", "double", "double-single", "--sweeps", "2"]
    (rows,) = tables(hisq_solves.main, *arguments)
    assert [row[3:5] for row in rows] == [
        [source, precision]
        for source in ("wall", "point", "noise")
        for precision in ("double", "double-single")
    ]
    assert {row[8] for row in rows} == {"converged"}
    assert all(float(row[9]) <= 1e-8 for row in rows)
