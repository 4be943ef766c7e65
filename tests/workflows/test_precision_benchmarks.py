"""Tables of the scripts that compare precisions: every cell, and what an emulation must not pass by."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stages.lqcd.dirac.operator import Frugal
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.lattice.geometry import Lattice
from workflows.benchmarks import mixed_precision, storage_forms, truncated_solver
from workflows.benchmarks.machine import Host, metered, random_field
from workflows.benchmarks.mixed_iterations import HalfInside, columns
from workflows.benchmarks.script import quenched, wilson
from workflows.benchmarks.truncated_solver import Measured

LATTICE = Lattice((4, 4, 4, 4))
Table = Callable[..., list[list[list[str]]]]


@pytest.fixture
def schur() -> WilsonSchur:
    thin = quenched(LATTICE, "precisions", beta=6.0, seed=19, sweeps=2)
    return WilsonSchur(wilson(thin, LATTICE, 0.3, 1.0))


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


def test_emulated_half_rounds_what_the_operator_reads_and_writes(schur: WilsonSchur) -> None:
    emulated = HalfInside(schur)
    assert not isinstance(emulated, Frugal)  # a way past the rounding
    x = random_field(Host(), (*schur.shape, 2), complex)
    exact, single = schur.apply(x), x.astype(np.complex64)
    assert np.array_equal(emulated.apply(x), exact)
    result = emulated.astype(np.complex64).apply(single)
    error = np.linalg.norm(result - exact) / np.linalg.norm(exact)
    assert 1e-6 < error < 1e-4


def test_every_form_has_a_column_and_only_that_of_cg_is_emulated() -> None:
    for method, emulated in (("BiCGstab", 0), ("CG", 6)):
        table = list(columns(method, 1e-8, 10))
        assert len({name for name, _, _ in table}) == len(table) == 13
        assert sum(each for _, each, _ in table) == emulated


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
    times, rates, errors, memory, bicgstab, cg = found
    assert [row[:3] for row in times[:5]] == [["0.3", *each] for each in mixed_precision.SOLVES]
    assert all(int(row[3]) > 3 and float(row[-1]) <= 1e-8 for row in times)
    assert [row[0] for row in rates] == ["double", "double-single", "double-half"]
    assert rates[-1][-2:] == ["-", "-"]
    assert [row[2] for row in errors] == [storage_forms.WHOLE, storage_forms.TO_SINGLE, storage_forms.HALF]
    assert all(0 < float(cell) < 1e-4 for row in errors for cell in row[3:])
    assert len(memory) == 5 and all(float(cell) > 0 for row in memory for cell in row[2:])
    assert all(int(cell) > 3 for row in (*bicgstab, *cg) for cell in row[1:])
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
