"""Memory of a worker from records: what every process has, what plans declare, what stays, what kernels take.

    bytes = base + share * declared + results that stay on the worker [+ kernels and compilers, on the host]

What stays was measured beside each chunk, and so were kernels: they are taken off before base and share are
fitted, and those of the run to come are added. On a GPU a pool never shrinks: of the chunks of a process
only those say what they need at which it grew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from statistics import median

import numpy as np

from pipeline.reading.forecast.estimate import Estimate
from pipeline.reading.forecast.samples import ChunkSample

SHARE, SHARE_WIDTH = 0.8, 0.15
"""Part of what a plan declares that is really taken, and its standard deviation, before any record."""

SCATTER, BETWEEN = 0.03, 0.1
"""Of the bytes of equal chunks, and of stages about a common line."""

DEVICE_KNOWN, DEVICE_UNKNOWN = 0.05, 0.3
"""Of the logarithm of the bytes on a GPU, of a stage with records and of one without."""

COMPILERS = 50e6
"""Bytes of Numba and LLVM in a process, which come with its first kernel (docs/notes/forecast.md)."""


Points = Sequence[tuple[float, float]]
"""(declared, measured)."""

Rows = Sequence[tuple[str, float, float]]
"""(stage, declared, measured)."""


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
class Memory:
    """Memory of workers of one backend, from samples in the order of time."""

    samples: Sequence[ChunkSample]

    def kept(self, declared: float) -> float:
        """Bytes of results that stay on a worker, from those that are declared, up to the bound of its cache.

        The least that a process kept is the inputs of its first chunk.
        """
        limits = [sample.resident_limit for sample in self.samples]
        return min(max(limits, default=float("inf")), self._kept_share * declared)

    @cached_property
    def _kept_share(self) -> float:
        ratios: dict[str, float] = {}
        for sample in self.samples:
            if declared := sample.expected["resident"]:
                ratio = sample.resident / declared
                ratios[sample.process] = min(ratio, ratios.get(sample.process, ratio))
        return median(ratios.values()) if ratios else 1.0

    @cached_property
    def host_rows(self) -> Rows:
        """Chunks as measured on the host, without kernels and what stays for others."""
        kernels: Counter[str] = Counter()
        rows = []
        for sample in self.samples:
            kernels[sample.process] += sample.all_kernels().nbytes
            if sample.host_bytes:
                others = 0.0
                if sample.machine.backend == "cpu":
                    others = sample.resident - self.kept(sample.expected["resident"])
                measured = sample.host_bytes - kernels[sample.process] - others
                rows.append((sample.stage, float(sample.expected["memory"]), measured))
        return rows

    @cached_property
    def device_rows(self) -> Rows:
        """Chunks at which a process's pool on a GPU grew, without what stays."""
        most: dict[str, int] = {}
        rows = []
        for sample in self.samples:
            if sample.device_bytes and sample.device_bytes > most.get(sample.process, 0):
                most[sample.process] = sample.device_bytes
                declared = sample.expected["device_memory"] - sample.expected["resident"]
                rows.append((sample.stage, float(declared), float(sample.device_bytes - sample.resident)))
        return rows

    def on_host(self, stage: str, declared: int) -> Estimate:
        """Bytes of a process at a chunk of a stage, without kernels and what stays for others."""
        declaring = [(x, y) for _, x, y in self.host_rows if x]
        own = [(x, y) for name, x, y in self.host_rows if name == stage]
        if own:
            own = [min(own, key=itemgetter(1))]  # others have what heaps did not give back
        return line(own or declaring, declared, slope(declaring) if declared else 0.0)

    def on_device(self, stage: str, declared: int, held: float) -> Estimate:
        """Bytes of a pool for a chunk of a stage, and of results that stay, from those that are declared."""
        ratios = [y / x for name, x, y in self.device_rows if name == stage and x]
        value = declared * max(ratios, default=1.0) + self.kept(held)
        return Estimate(value, DEVICE_KNOWN if ratios else DEVICE_UNKNOWN)


def kernel_memory(nbytes: float) -> float:
    """Bytes on the host of a process that has kernels of so many, compilers included."""
    return max(COMPILERS, nbytes) if nbytes else 0.0
