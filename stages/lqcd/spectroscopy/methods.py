"""The solvers that a parameter file names for Wilson-type systems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stages.lqcd.dirac.operator import Solver
from stages.lqcd.kernels.dispatch import Kernels
from stages.lqcd.lattice.errors import InputError
from stages.lqcd.multigrid.hierarchy import Hierarchy
from stages.lqcd.solvers.bicgstab import BiCGstab
from stages.lqcd.solvers.block_cgrq import BlockCGrQ
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.gcr import GCR
from stages.lqcd.solvers.normal_equations import NormalEquations
from stages.lqcd.spectroscopy.even_odd import EvenOdd, Method

PRECISIONS = {"double": None, "double-single": "single"}
"""Name in a parameter file: precision inside the solver. Residuals are in double."""
_SOLVERS: dict[str, Callable[..., Solver]] = {
    "bicgstab": BiCGstab,
    "cgnr": lambda *settings: NormalEquations(BatchedCG(*settings)),
    "block_cgrq": lambda *settings: NormalEquations(BlockCGrQ(*settings)),
    "gcr": GCR,
}
MULTIGRID = "multigrid"
SOLVERS = (MULTIGRID, *_SOLVERS)
"""GCR preconditioned by a hierarchy, BiCGstab, conjugate gradients on the normal equations, batched or as one
block, and GCR(10)."""


def make_method(
    name: str,
    precision: str,
    tolerance: float,
    max_iterations: int,
    hierarchy: Hierarchy | None = None,
    kernels: Kernels | None = None,
) -> Method:
    """The method that a parameter file names; kernels: by default those of the fields.

    hierarchy: what 'multigrid' preconditions with, its cycles in complex64. Raises InputError.
    """
    for kind, value, known in (("solver", name, SOLVERS), ("precision", precision, PRECISIONS)):
        if value not in known:
            raise InputError(f"{kind} must be one of {', '.join(known)}, got {value!r}")
    if name == MULTIGRID:
        if hierarchy is None:
            raise InputError("multigrid needs a hierarchy: give one, or name another solver")
        gcr = hierarchy.solver(tolerance, max_iterations)
        return EvenOdd(replace(gcr, inner=PRECISIONS[precision], kernels=kernels))
    return EvenOdd(_SOLVERS[name](tolerance, max_iterations, PRECISIONS[precision], kernels))
