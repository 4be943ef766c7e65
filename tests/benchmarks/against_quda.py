"""Figures of `quarkline bench --json` beside those of QUDA, as a Markdown table.

    quarkline bench --backend cuda --json > gpu.json
    python tests/benchmarks/against_quda.py gpu.json

All are ps per (site, right-hand side) on an H200, compared at equal volume, QUDA with its own autotuner and
its long links in 13 real numbers. At 32^3 x 48 it is a public fork of December 2024 built with register tiles
over right-hand sides (tile 4; a compile option that is off by default); at N = 1 in 16 bits and at 24^4 its
commit of October 2024, which has no tiles (there its best double figures at N = 1 and 16 are 550.5 and
184.2). QUDA's iteration of CG stands beside both of ours.
"""

from __future__ import annotations

import json
from pathlib import Path

from script import PrintedTable, arguments_of

WIDTHS = (1, 8, 12, 16, 32)
REFERENCES: dict[tuple[str, str, str], tuple[float | None, ...]] = {
    ("32x32x32x48", "hisq_dslash", "single"): (279, 84.8, 79.3, 75.1, 75.2),
    ("32x32x32x48", "hisq_dslash", "double"): (552, 182, 161, 165, 153),
    ("32x32x32x48", "hisq_dslash", "half"): (163.5, 72.2, None, 67.6, 65.3),
    ("32x32x32x48", "BatchedCG", "double-single"): (None, None, 234, 225),
    ("32x32x32x48", "BlockCGrQ", "double-single"): (None, None, 234, 225),
    ("24x24x24x24", "hisq_dslash", "double"): (None, None, None, None, 218),
    ("24x24x24x24", "BatchedCG", "double"): (1500, None, None, 573),
    ("24x24x24x24", "BatchedCG", "double-single"): (None, None, None, 288),
}
"""Picoseconds of QUDA for each of WIDTHS; None where nobody measured it."""


def main() -> None:
    """Print the lines of a file for which there is something to compare with."""
    table = PrintedTable("kernel", "lattice", "precision", "N", "ps", "QUDA, ps", "ratio")
    for line in json.loads(Path(arguments_of(__doc__, "file").file).read_text())["lines"]:
        names = line["kernel"], line["lattice"], line["precision"], line["rhs"]
        row = REFERENCES.get((names[1], names[0], names[2]), ())
        other = dict(zip(WIDTHS, row, strict=False)).get(line["rhs"])
        if other:
            table.add(*names, line["picoseconds"], other, other / line["picoseconds"])


if __name__ == "__main__":
    main()
