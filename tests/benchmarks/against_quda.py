"""Figures of `quarkline bench --json` beside those of QUDA and of the prototype kernels, as a Markdown table.

    quarkline bench --backend cuda --json > gpu.json
    python tests/benchmarks/against_quda.py gpu.json

All are ps per (site, right-hand side) on an H200, compared at equal volume, QUDA with its own autotuner and
its long links in 13 real numbers. At 32^3 x 48 it is a public fork of December 2024 built with register tiles
over right-hand sides (tile 4; a compile option that is off by default), measured beside quarkline on the same
card; at N = 1 in 16 bits and at 24^4 its commit of October 2024, which has no tiles (there its best double
figures at N = 1 and 16 are 550.5 and 184.2). QUDA's iteration of CG stands beside both of ours.
"""

from __future__ import annotations

import json
from pathlib import Path

from script import PrintedTable, arguments_of

WIDTHS = (1, 8, 12, 16, 32, 64)
Row = tuple[float | None, ...]
REFERENCES: dict[tuple[str, str, str], tuple[Row, Row]] = {
    ("32x32x32x48", "hisq_dslash", "single"): (
        (308.7, 59.6, None, 42.2, 37.2, 36.4),
        (279, 84.8, 79.3, 75.1, 75.2, None),
    ),
    ("32x32x32x48", "hisq_dslash", "double"): (
        (729, 113.5, None, 90.9, 86.8, 88.6),
        (552, 182, 161, 165, 153, None),
    ),
    ("32x32x32x48", "hisq_dslash", "int16"): (
        (None, 50.3, None, 43.1, 41.5, None),
        (163.5, 72.2, None, 67.6, 65.3, None),
    ),
    ("32x32x32x48", "BatchedCG", "double-single"): ((), (None, None, 234, 225)),
    ("32x32x32x48", "BlockCGrQ", "double-single"): ((), (None, None, 234, 225)),
    ("24x24x24x24", "hisq_dslash", "single"): ((None, None, None, 45.8, 38.2), ()),
    ("24x24x24x24", "hisq_dslash", "double"): ((), (None, None, None, None, 218)),
    ("24x24x24x24", "BatchedCG", "double"): ((), (1500, None, None, 573)),
    ("24x24x24x24", "BatchedCG", "double-single"): ((), (None, None, None, 288)),
}
"""Picoseconds of the prototype and of QUDA, for each of WIDTHS; None where nobody measured it."""


def main() -> None:
    """Print the lines of a file for which there is something to compare with."""
    table = PrintedTable(
        "kernel", "lattice", "precision", "N", "ps", "prototype, ps", "ratio", "QUDA, ps", "ratio"
    )
    for line in json.loads(Path(arguments_of(__doc__, "file").file).read_text())["lines"]:
        names = line["kernel"], line["lattice"], line["precision"], line["rhs"]
        rows = REFERENCES.get((names[1], names[0], names[2]), ((), ()))
        others = [dict(zip(WIDTHS, row, strict=False)).get(line["rhs"]) for row in rows]
        if others != [None, None]:
            ratios = [other and other / line["picoseconds"] for other in others]
            table.add(*names, line["picoseconds"], others[0], ratios[0], others[1], ratios[1])


if __name__ == "__main__":
    main()
