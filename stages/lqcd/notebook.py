"""Operators and solvers for notebooks, as `import quarkline` offers them.

A solver lays the links of an operator out for the block and the precision that it solves, sends right-hand
sides where the operator works, and takes one without the axis of right-hand sides. All else is the library's
own: `Operator.laid_out`, `Solver.method` and `LowModes.space` give its objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import ModuleType
from typing import Any, Literal

import numpy as np

from stages.base.errors import InputError
from stages.lqcd.dirac.full_lattice import StaggeredOperator, StaggeredSchur
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.eigen.eigenpairs import Eigenpairs
from stages.lqcd.gauge.hisq import StaggeredLinks, asqtad_links, hisq_links
from stages.lqcd.gauge.wilson_links import WilsonLinks, wilson_links
from stages.lqcd.kernels.dispatch import Array
from stages.lqcd.kernels.fields import contiguous, converted
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.kernels.transfer import to_device
from stages.lqcd.lattice.formats.gauge_file import GaugeField
from stages.lqcd.multigrid.hierarchy import Hierarchy
from stages.lqcd.multigrid.levels import LevelNumbers, default_levels, multigrid_of
from stages.lqcd.solvers.deflation import DeflatedSolver, StaggeredSpace
from stages.lqcd.solvers.even_odd import EvenOdd, full_residual
from stages.lqcd.solvers.named import MULTIGRID, Solve
from stages.lqcd.solvers.solution import Solution

Boundary = str | Sequence[str]
Precision = Literal["double", "double-single", "double-half"]
LANCZOS_BLOCK = 8
MULTIGRID_LEVEL = {"smoothing": 8, "refinements": 2}
MULTIGRID_SEED = 20090311
OF_WILSON = {"batched_cg": "cgnr"}
"""Solvers that another name has for operators that are not positive definite."""


@dataclass(frozen=True, repr=False)
class Operator:
    """A Dirac operator at one mass, or its normal operator on the even sites.

    matrix: the library's, in double precision: a `NormalOperator`, `StaggeredOperator` or `WilsonOperator`.
    words: it in a line.
    """

    matrix: Any
    words: str
    _laid_out: dict[Packing, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        where = "CPU" if self.xp is np else "GPU"
        return f"{self.words} on {self.matrix.dslash.lattice} ({where})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of a field without its last axis, the right-hand sides."""
        return self.matrix.shape

    @property
    def dtype(self) -> np.dtype:
        return self.matrix.dtype

    @property
    def xp(self) -> ModuleType:
        """`numpy` or `cupy`: where fields lie."""
        return self.matrix.xp

    def __matmul__(self, x: Array) -> Array:
        """A x of a field ``[*shape, N]``, or ``[*shape]``. Raises InputError for another field."""
        block, restored = self.block_of(x)
        return restored(self.laid_out(block.shape[-1], "double").apply(block))

    def laid_out(self, block: int, precision: str) -> Any:
        """The library's operator, its links packed for so many right-hand sides; kept, the last one."""
        packing = Packing.of(block, precision)
        if packing not in self._laid_out:
            self._laid_out.clear()  # the memory of another form is free before
            M, dslash = self.matrix, self.matrix.dslash
            wilson = isinstance(M, WilsonOperator)  # its clover matrices are made once
            made = M.laid_out(packing) if wilson else replace(M, dslash=dslash.laid_out(packing))
            self._laid_out[packing] = made
        return self._laid_out[packing]

    def block_of(self, b: Array) -> tuple[Array, Callable[[Array], Array]]:
        """A block ``[*shape, N]`` where the operator works, and what gives a field of the shape of b.

        Raises InputError for a field of another shape.
        """
        alone = tuple(b.shape) == self.shape
        if not alone and tuple(b.shape[:-1]) != self.shape:
            given = ", ".join(map(str, self.shape))
            raise InputError(
                f"a field of {self!r} is [{given}] or, of N right-hand sides, [{given}, N]; got "
                f"{list(b.shape)}"
            )
        block = b[..., None] if alone else b
        if self.xp is not np and isinstance(b, np.ndarray):
            block = to_device(np.ascontiguousarray(block, self.dtype))
        elif self.xp is np and not isinstance(b, np.ndarray):
            raise InputError(
                f"the field lies on a GPU and {self!r} works on the CPU: send it by copy_to_host"
            )
        return contiguous(converted(block, self.dtype)), lambda x: x[..., 0] if alone else x


@dataclass(frozen=True, repr=False)
class Staggered:
    """D of staggered quarks; `normal` and `full` are operators of a mass m > 0 with M = 2 m + D."""

    links: StaggeredLinks
    words: str

    def __repr__(self) -> str:
        return f"{self.words} on {self.links.lattice}"

    @cached_property
    def dslash(self) -> StaggeredDslash:
        return StaggeredDslash(self.links)

    def normal(self, mass: float) -> Operator:
        """4 m^2 - D^2 on the even sites, ``[site, 3, N]``: Hermitian, positive definite."""
        return Operator(NormalOperator(self.dslash, mass), f"4 m^2 - D^2, {self.words}, m = {mass:g}")

    def full(self, mass: float) -> Operator:
        """M = 2 m + D on both parities, ``[parity, site, 3, N]``."""
        return Operator(StaggeredOperator(self.dslash, mass), f"2 m + D, {self.words}, m = {mass:g}")


def hisq(field: GaugeField, *, boundary: Boundary, naik_epsilon: float, backend: str = "cpu") -> Staggered:
    """HISQ quarks on a gauge field that was read; arguments as of `hisq_links`. Raises InputError."""
    options: dict[str, Any] = {"boundary": boundary, "naik_epsilon": naik_epsilon, "backend": backend}
    return Staggered(hisq_links(field.links, field.lattice, **options), "HISQ")


def asqtad(field: GaugeField, *, boundary: Boundary, u0: float, backend: str = "cpu") -> Staggered:
    """Asqtad quarks; arguments as of `asqtad_links`. Raises InputError."""
    links = asqtad_links(field.links, field.lattice, boundary=boundary, u0=u0, backend=backend)
    return Staggered(links, "asqtad")


def wilson_clover(
    field: GaugeField, mass: float, *, boundary: Boundary, csw: float = 0.0, backend: str = "cpu"
) -> Operator:
    """M of Wilson-clover quarks, ``[parity, site, 12, N]``; arguments as of `wilson_links`.

    Raises InputError.
    """
    links: WilsonLinks = wilson_links(field.links, field.lattice, boundary=boundary, csw=csw, backend=backend)
    words = f"Wilson{'-clover' if csw else ''}, mass = {mass:g}"
    return Operator(WilsonOperator(WilsonDslash(links), mass), words)


@dataclass(frozen=True)
class Solver:
    """A solver of operators of this module: call it with one and with right-hand sides.

    name: of `stages.lqcd.solvers.named`. precision: 'double', 'double-single' or 'double-half' inside;
    residuals are in double. space: deflated. hierarchy, links: of multigrid, and what it was set up for.
    """

    name: str
    tolerance: float
    precision: str = "double-single"
    space: LowModes | None = field(default=None, repr=False)
    hierarchy: Hierarchy | None = field(default=None, repr=False)
    links: WilsonLinks | None = field(default=None, repr=False)

    def __call__(self, A: Operator, b: Array, **options: Any) -> Solution:
        """The solution of A x = b, x of the shape of b where A works.

        b: ``[*A.shape, N]`` or ``[*A.shape]``, on the host or the GPU. options: of the library's `solve`.
        An operator on both parities is solved through its even-odd system; `residual` is that of A x = b.
        Raises NotConverged, and InputError where solver and operator do not fit, or half precision is asked
        of a CPU.
        """
        if self.precision == "double-half" and A.xp is np:
            raise InputError(
                "precision 'double-half' has kernels on a GPU only; on a CPU it would take many times as "
                "long as single: give precision='double-single', or make the operator with backend='cuda'"
            )
        block, restored = A.block_of(b)
        M = A.laid_out(block.shape[-1], self.precision)
        if self.hierarchy is not None and self.links is not M.dslash.links:
            raise InputError(f"multigrid was set up for other links than those of {A!r}: set it up for it")
        solution = self.method(M).solve(M, block, **options)
        if not isinstance(M, NormalOperator):
            solution = replace(solution, residual=full_residual(M, solution.x, block))
        return replace(solution, x=restored(solution.x))

    def method(self, M: Any) -> Any:
        """The library's solver for its operator M."""
        settings = Solve(self.name, self.tolerance, self.precision)
        if isinstance(M, WilsonOperator):
            if self.space is not None:
                raise InputError("these low modes are of staggered quarks and deflate no Wilson operator")
            regular = replace(settings, solver=OF_WILSON.get(self.name, self.name))
            return EvenOdd(regular.of_regular(self.hierarchy), WilsonSchur)
        positive = settings.of_positive()
        solver = positive if self.space is None else DeflatedSolver(positive, self.space.space)
        return solver if isinstance(M, NormalOperator) else EvenOdd(solver, StaggeredSchur)


def cg(tolerance: float, precision: Precision = "double-single") -> Solver:
    """Batched CG: each right-hand side has its own coefficients; of Wilson quarks on normal equations."""
    return Solver("batched_cg", tolerance, precision)


def block_cg(tolerance: float, precision: Precision = "double-single") -> Solver:
    """Block CGrQ: all right-hand sides share one Krylov space (arXiv:1710.09745)."""
    return Solver("block_cgrq", tolerance, precision)


def bicgstab(tolerance: float, precision: Precision = "double-single") -> Solver:
    """BiCGstab, of Wilson quarks."""
    return Solver("bicgstab", tolerance, precision)


def multigrid(
    M: Operator,
    tolerance: float,
    precision: Precision = "double-single",
    levels: Sequence[LevelNumbers] | None = None,
) -> Solver:
    """GCR preconditioned by adaptive multigrid (arXiv:1303.1377), which is set up here for M.

    M: of Wilson quarks. levels: as `multigrid_of`, by default aggregates of 4 sites in a direction and 24
    vectors. Raises InputError, and PoorSetup.
    """
    if not isinstance(M.matrix, WilsonOperator):
        raise InputError(f"multigrid is for Wilson quarks, got {M!r}: solve staggered ones by cg or block_cg")
    chosen = levels or [MULTIGRID_LEVEL | level for level in default_levels(M.matrix.dslash.lattice)]
    hierarchy = multigrid_of(chosen, MULTIGRID_SEED).setup(M.matrix)
    return Solver(MULTIGRID, tolerance, precision, None, hierarchy, M.matrix.dslash.links)


@dataclass(frozen=True)
class LowModes:
    """The lowest eigenpairs of -D^2 on the even sites, which are those of 4 m^2 - D^2 at every mass.

    pairs: values, vectors ``[site, 3, k]``, residuals and how they were found.
    """

    pairs: Eigenpairs = field(repr=False)
    dslash: StaggeredDslash = field(repr=False)

    def __len__(self) -> int:
        return len(self.pairs.values)

    @cached_property
    def space(self) -> StaggeredSpace:
        """The span of the modes, for deflation of both parities; no operator is applied to them again."""
        return StaggeredSpace(self.dslash, self.pairs.space)

    def deflate(self, solver: Solver) -> Solver:
        """A solver with these modes projected out, for any mass and either parity."""
        return replace(solver, space=self)


def lowest(A: Operator, vectors: int, tolerance: float = 1e-8, **options: Any) -> LowModes:
    """The lowest eigenpairs of an operator of staggered quarks, without its mass, by block Lanczos.

    tolerance: of |B v - lambda v|, relative to the largest eigenvalue. options: of `BlockLanczos`, as block
    and subspace. Raises InputError, and EigenpairsNotConverged.
    """
    if isinstance(A.matrix, WilsonOperator):
        raise InputError(f"low modes are those of staggered normal operators, got {A!r}")
    method = BlockLanczos(vectors, **{"block": LANCZOS_BLOCK, "tolerance": tolerance} | options)
    dslash = A.matrix.dslash.laid_out(Packing.of(method.block, "double"))
    return LowModes(method.solve(NormalOperator(dslash, A.matrix.mass).massless), A.matrix.dslash)
