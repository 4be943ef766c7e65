"""What a solver keeps while it works, in blocks of right-hand sides; solvers state it beside their fields."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Workspace:
    """Blocks alive at a time, in double precision: b, x, the residual and one more outside of the solver, the
    rest inside.

    host: with temporaries of array expressions. double, mixed: of a GPU's pool, without and with single
    precision inside.
    """

    host: float
    double: float
    mixed: float

    def on_device(self, precision: str) -> float:
        """In 'double' or 'double-single'."""
        return self.double if precision == "double" else self.mixed
