"""Memory of solvers in blocks of right-hand sides; each solver states it beside its fields."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Workspace:
    """Blocks of right-hand sides alive at a time, in double precision.

    Outside of the solver b, x, the residual and one more, the rest inside.

    host: with temporaries of array expressions. double, mixed: of a GPU's pool, without and with single
    precision inside.
    """

    host: float
    double: float
    mixed: float

    def on_device(self, precision: str) -> float:
        """Blocks on a GPU in 'double' or 'double-single'."""
        return self.double if precision == "double" else self.mixed
