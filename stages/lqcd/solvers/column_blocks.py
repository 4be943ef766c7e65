"""Many right-hand sides in blocks of what a solver takes together."""

from __future__ import annotations

from stages.lqcd.lattice.errors import InputError


def blocks(columns: int, width: int) -> list[range]:
    """The columns 0 ... columns - 1 in ranges of `width`, the last one perhaps shorter. Raises InputError."""
    if width < 1:
        raise InputError(f"a block of right-hand sides holds at least 1, got {width}")
    return [range(start, min(start + width, columns)) for start in range(0, columns, width)]
