"""The solvers that a parameter file names for Wilson-type systems."""

from __future__ import annotations

from collections.abc import Callable

from stages.dirac.operator import Solver
from stages.kernels.dispatch import Kernels
from stages.lattice.errors import InputError
from stages.solvers.bicgstab import BiCGstab
from stages.solvers.block_cgrq import BlockCGrQ
from stages.solvers.cg import BatchedCG
from stages.solvers.gcr import GCR
from stages.solvers.normal_equations import NormalEquations
from stages.spectroscopy.even_odd import EvenOdd, Method

PRECISIONS = {"double": None, "double-single": "single"}
"""Name in a parameter file: precision inside the solver. Residuals are in double."""
_SOLVERS: dict[str, Callable[..., Solver]] = {
    "bicgstab": BiCGstab,
    "cgnr": lambda *settings: NormalEquations(BatchedCG(*settings)),
    "block_cgrq": lambda *settings: NormalEquations(BlockCGrQ(*settings)),
    "gcr": GCR,
}
SOLVERS = tuple(_SOLVERS)


def make_method(
    name: str, precision: str, tolerance: float, max_iterations: int, kernels: Kernels | None = None
) -> Method:
    """The method that a parameter file names; kernels: by default those of the fields. Raises InputError."""
    for kind, value, known in (("solver", name, SOLVERS), ("precision", precision, PRECISIONS)):
        if value not in known:
            raise InputError(f"{kind} must be one of {', '.join(known)}, got {value!r}")
    return EvenOdd(_SOLVERS[name](tolerance, max_iterations, PRECISIONS[precision], kernels))
