"""Memory of solvers in blocks of right-hand sides; each solver states it beside its fields."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Workspace:
    """Blocks of right-hand sides alive at a time, in double precision, b among them.

    host: with temporaries of array expressions. double, mixed: of a GPU's pool, without and with single
    precision inside; what they are made of is in docs/gpu_memory.md.
    """

    host: float
    double: float
    mixed: float

    def on_device(self, precision: str) -> float:
        """Blocks on a GPU in 'double', 'double-single' or 'double-half', which takes no more than single."""
        return self.double if precision == "double" else self.mixed

    def on_host(self, precision: str) -> float:
        """Blocks on the host."""
        return max(self.host, self.on_device(precision))
