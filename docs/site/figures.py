"""Cut figures out of a report for the documentation.

python docs/site/figures.py report-g2/index.html 1=docs/g2_disconnected.svg 3=docs/figures/error_budget.svg
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def main(report: str, *wanted: str) -> None:
    """Write figures of a report, counted from 1, as files of their own."""
    figures = re.findall(r"<svg .*?</svg>", Path(report).read_text(encoding="utf-8"), re.DOTALL)
    for number, _, name in (text.partition("=") for text in wanted):
        Path(name).write_text(figures[int(number) - 1] + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
