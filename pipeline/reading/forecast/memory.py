"""Memory of a worker from records: what every process has, what plans declare, what stays, what kernels take.

    bytes = base + share * declared + results that stay on the worker [+ kernels and compilers, on the host]

What stays was measured beside each chunk, and so were kernels: they are taken off before base and share are
fitted, and those of the run to come are added. On a GPU a pool never shrinks: of the chunks of a process
only those say what they need at which it grew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from pipeline.reading.forecast.model import Estimate
from pipeline.reading.forecast.samples import ChunkSample

SHARE, SHARE_WIDTH = 0.8, 0.15
"""Part of what a plan declares that is really taken, and its standard deviation, before any record."""

SCATTER, BETWEEN = 0.03, 0.1
"""Of the bytes of equal chunks, and of stages about a common line."""

COMPILERS = 50e6
"""Bytes of Numba and LLVM in a process, which come with its first kernel (docs/forecast.md)."""


Points = Sequence[tuple[float, float]]
"""(declared, measured)."""


def line(points: Points, at: float, share: float) -> Estimate:
    """A measured size at a declared one: a base, and a share of what was declared."""
    if not points:
        return Estimate(at, 0.3)
    x, y = np.array(points, float).T
    value = max(float(np.median(y - share * x)) + share * at, 0.0)
    return Estimate(value, SCATTER + 0.1 * abs(at - x.max()) / max(at, x.max(), 1.0))


def slope(points: Points) -> float:
    """Share of what was declared that stages take, from their points and the prior."""
    if not points:
        return SHARE
    x, y = np.array(points, float).T
    allowed = max(BETWEEN * y.mean(), 1.0)
    off = (x - x.mean()) / allowed
    return float((off @ y / allowed + SHARE / SHARE_WIDTH**2) / (off @ off + SHARE_WIDTH**-2))


@dataclass(frozen=True)
class Kept:
    """Results that stay on a worker: bytes for each one that is declared, and the bound of all."""

    ratio: float
    limit: float

    def bytes(self, declared: float) -> float:
        """Bytes of all that stays, from those that are declared."""
        return min(self.limit, self.ratio * declared)


def kept(samples: Sequence[ChunkSample]) -> Kept:
    """Fit to samples of one backend: the least that a process kept is the inputs of its first chunk."""
    ratios: dict[str, float] = {}
    for sample in samples:
        if declared := sample.expected["resident"]:
            ratio = sample.resident / declared
            ratios[sample.process] = min(ratio, ratios.get(sample.process, ratio))
    limits = [sample.resident_limit for sample in samples]
    return Kept(median(ratios.values()) if ratios else 1.0, max(limits, default=float("inf")))


def on_host(samples: Sequence[ChunkSample], of_kept: Kept) -> list[tuple[ChunkSample, float, float]]:
    """Chunks with declared bytes: these, and those measured without kernels and what stays for others."""
    kernels: dict[str, int] = {}
    rows = []
    for sample in sorted(samples, key=lambda each: each.finished):
        tables = (sample.kernels, *(part.kernels for part in sample.parts))
        taken = sum(each.nbytes for table in tables for each in table.values())
        kernels[sample.process] = kernels.get(sample.process, 0) + taken
        if sample.host_bytes:
            others = 0.0
            if sample.machine.backend == "cpu":
                others = sample.resident - of_kept.bytes(sample.expected["resident"])
            measured = sample.host_bytes - kernels[sample.process] - others
            rows.append((sample, float(sample.expected["memory"]), measured))
    return rows


def on_device(samples: Sequence[ChunkSample]) -> list[tuple[ChunkSample, float, float]]:
    """Chunks at which a process's pool grew: bytes declared and measured without what stays."""
    most: dict[str, int] = {}
    rows = []
    for sample in sorted(samples, key=lambda each: each.finished):
        if sample.device_bytes and sample.device_bytes > most.get(sample.process, 0):
            most[sample.process] = sample.device_bytes
            declared = sample.expected["device_memory"] - sample.expected["resident"]
            rows.append((sample, float(declared), float(sample.device_bytes - sample.resident)))
    return rows
