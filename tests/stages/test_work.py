"""Expected iterations follow what was measured, and passes of a chunk follow its parameters."""

from __future__ import annotations

import pytest

from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.noise import Dilution
from stages.lqcd.solvers.named import Solve
from stages.shared.work import staggered_iterations, staggered_work, together, wilson_work

LATTICE = Lattice((8, 8, 8, 16))


@pytest.mark.parametrize(
    ("columns", "vectors", "measured"), [(8, 0, 189), (16, 0, 127), (32, 0, 89), (1, 64, 109), (16, 64, 85)]
)
def test_iterations_of_block_solves_are_near_the_measured_ones(columns, vectors, measured):
    """Measured: docs/notes/solver_iterations.md, m = 0.05, double."""
    solve = Solve("block_cgrq", 1e-10, "double")
    assert staggered_iterations(LATTICE, 0.05, solve, columns, vectors) == pytest.approx(measured, rel=0.15)


def test_work_counts_blocks_columns_and_bytes() -> None:
    solve = Solve("block_cgrq", 1e-8, block=16)
    one, more = (staggered_work(LATTICE, 0.05, solve, columns, 16) for columns in (16, 48))
    assert more[0].count == pytest.approx(3 * one[0].count)
    assert more[0].nbytes == one[0].nbytes
    assert (one[1].count, more[1].count) == (16, 48)
    double = staggered_work(LATTICE, 0.05, Solve("block_cgrq", 1e-8, "double", block=16), 16, 16)
    assert double[0].nbytes == 2 * one[0].nbytes
    both = together([one, one])
    assert both[0].count == 2 * one[0].count
    assert both[0].alike != one[0].alike
    wilson = wilson_work(LATTICE, 0.13, Solve("bicgstab", 1e-8, block=12), 12)
    larger = wilson_work(Lattice((8, 8, 8, 32)), 0.13, Solve("bicgstab", 1e-8, block=12), 12)
    assert larger[0].nbytes == 2 * wilson[0].nbytes
    assert larger[0].alike == wilson[0].alike


@pytest.mark.parametrize("options", [None, {"displacement": 2}, {"color": True, "time": 4}, {"time": "full"}])
def test_dilution_counts_its_subsets_without_making_them(options: dict[str, object] | None) -> None:
    dilution = Dilution.parse(options)
    made = sum(len(dilution.partition(LATTICE, parity).subsets) for parity in (EVEN, ODD))
    if options is None or "displacement" in options:
        assert dilution.count(LATTICE) == made
    else:
        assert dilution.count(LATTICE) >= made // 2
