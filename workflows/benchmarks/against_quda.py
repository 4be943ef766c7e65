"""Figures of `quarkline bench --json` beside those of QUDA and of the prototype kernels, as a Markdown table.

    quarkline bench --backend cuda --json > gpu.json
    python -m workflows.benchmarks.against_quda gpu.json [ANOTHER.json ...]

All are ps per (site, right-hand side) on an H200, compared at equal volume, QUDA with its own autotuner and
its long links in 13 real numbers. At 32^3 x 48 it is a public fork of December 2024 built with register tiles
over right-hand sides (tile 4; a compile option that is off by default), measured beside quarkline on the same
card. Other figures are of its commit of October 2024, which has no tiles; there its best double figures at
N = 1 and 16 are 550.5 and 184.2. QUDA's iteration of CG stands beside both of ours.
"""

from __future__ import annotations

import json
import sys
from itertools import chain
from pathlib import Path
from typing import NamedTuple


class Reference(NamedTuple):
    """Picoseconds; None where nobody measured it."""

    prototype: float | None = None
    quda: float | None = None


BIG, SMALL = "32x32x32x48", "24x24x24x24"
REFERENCES = {
    (BIG, "hisq_dslash", "single", 1): Reference(308.7, 279),
    (BIG, "hisq_dslash", "single", 8): Reference(59.6, 84.8),
    (BIG, "hisq_dslash", "single", 12): Reference(None, 79.3),
    (BIG, "hisq_dslash", "single", 16): Reference(42.2, 75.1),
    (BIG, "hisq_dslash", "single", 32): Reference(37.2, 75.2),
    (BIG, "hisq_dslash", "single", 64): Reference(36.4, None),
    (BIG, "hisq_dslash", "double", 1): Reference(729, 552),
    (BIG, "hisq_dslash", "double", 8): Reference(113.5, 182),
    (BIG, "hisq_dslash", "double", 12): Reference(None, 161),
    (BIG, "hisq_dslash", "double", 16): Reference(90.9, 165),
    (BIG, "hisq_dslash", "double", 32): Reference(86.8, 153),
    (BIG, "hisq_dslash", "double", 64): Reference(88.6, None),
    (BIG, "hisq_dslash", "int16", 1): Reference(None, 163.5),
    (BIG, "hisq_dslash", "int16", 8): Reference(50.3, 72.2),
    (BIG, "hisq_dslash", "int16", 16): Reference(43.1, 67.6),
    (BIG, "hisq_dslash", "int16", 32): Reference(41.5, 65.3),
    (BIG, "BatchedCG", "double-single", 12): Reference(None, 234),
    (BIG, "BatchedCG", "double-single", 16): Reference(None, 225),
    (BIG, "BlockCGrQ", "double-single", 12): Reference(None, 234),
    (BIG, "BlockCGrQ", "double-single", 16): Reference(None, 225),
    (SMALL, "hisq_dslash", "single", 16): Reference(45.8, None),
    (SMALL, "hisq_dslash", "single", 32): Reference(38.2, None),
    (SMALL, "hisq_dslash", "double", 32): Reference(None, 218),
    (SMALL, "BatchedCG", "double", 1): Reference(None, 1500),
    (SMALL, "BatchedCG", "double", 16): Reference(None, 573),
    (SMALL, "BatchedCG", "double-single", 16): Reference(None, 288),
}
"""QUDA at 32^3 x 48 is the build with register tiles; at N = 1 in 16 bits and at 24^4 the older one."""


def row(line: dict, reference: Reference) -> str:
    """One line of the table; ratios say how many times as long the others take."""
    cells = [
        line["kernel"],
        line["lattice"],
        line["precision"],
        str(line["rhs"]),
        f"{line['picoseconds']:.1f}",
    ]
    for other in reference:
        cells += ["-", "-"] if other is None else [f"{other:g}", f"{other / line['picoseconds']:.2f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the lines of all files for which there is something to compare with."""
    results = [json.loads(Path(name).read_text()) for name in sys.argv[1:]]
    print("| kernel | lattice | precision | N | ps | prototype, ps | ratio | QUDA, ps | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for line in chain.from_iterable(result["lines"] for result in results):
        if reference := REFERENCES.get(
            tuple(line[name] for name in ("lattice", "kernel", "precision", "rhs"))
        ):
            print(row(line, reference))


if __name__ == "__main__":
    main()
