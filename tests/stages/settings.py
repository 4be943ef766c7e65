"""Loose options as the parameters of stages that solve."""

from __future__ import annotations

from typing import Any

from stages.lqcd.noise import Noise
from stages.lqcd.solvers.named import Solve

SOLVE = ("tolerance", "precision", "max_iterations", "block")


def grouped(*, solver: str = "block_cgrq", **options: Any) -> dict[str, Any]:
    """What belongs to `solve`, and to `noise` where a seed is given, in dataclasses; the rest as it is."""
    solve = Solve(solver, **{name: options.pop(name) for name in SOLVE if name in options})
    if "seed" in options:
        options["noise"] = Noise(options.pop("seed"), options.pop("noise"), options.pop("dilution", {}))
    return {**options, "solve": solve}
