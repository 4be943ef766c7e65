"""Memory of solvers in blocks of right-hand sides; each solver states it beside its fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Workspace:
    """Blocks of right-hand sides alive at a time, in double precision, b among them.

    host: with temporaries of array expressions. double, mixed: of a GPU's pool, without and with single
    precision inside; half: with 16 bits, where that takes less. What they are made of is in
    docs/gpu_memory.md.
    """

    host: float
    double: float
    mixed: float
    half: float | None = None

    @classmethod
    def largest(cls, spaces: Sequence[Workspace]) -> Workspace:
        """Room for any of some."""
        precisions = ("double", "double-single", "double-half")
        device = (max(space.on_device(each) for space in spaces) for each in precisions)
        return cls(max(space.host for space in spaces), *device)

    def on_device(self, precision: str) -> float:
        """Blocks on a GPU in 'double', 'double-single' or 'double-half'."""
        if precision == "double":
            return self.double
        return self.mixed if precision == "double-single" or self.half is None else self.half

    def on_host(self, precision: str) -> float:
        """Blocks on the host."""
        return max(self.host, self.on_device(precision))
