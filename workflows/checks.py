"""Checks of a run with the library's checksum, which sums arrays where they lie."""

from __future__ import annotations

from pipeline.worker.checks import FRACTION, Checks
from stages.lqcd.kernels.checksum import checksum


def checks_of(fraction: float | None = None) -> Checks:
    """Checks of a run; fraction: of the chunks, that are repeated in part, the usual one unless given."""
    return Checks(FRACTION if fraction is None else fraction, checksum)
