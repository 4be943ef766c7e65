"""Operators and solvers for notebooks, as `import quarkline` offers them.

A solver lays the links of an operator out for the block and the precision that it solves, sends right-hand
sides where the operator works, and takes one without the axis of right-hand sides. All else is the library's
own: `Operator.laid_out`, `Solver.method` and `LowModes.space` give its objects. Fields of a recurrence and of
a product belong to the operator, so that threads wait for each other: one works at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, wraps
from threading import RLock
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np

from stages.base.errors import InputError, check_number, suggestion
from stages.lqcd.dirac.full_lattice import StaggeredOperator, StaggeredSchur
from stages.lqcd.dirac.operator import MadeOf
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.dirac.wilson import WilsonDslash, WilsonOperator
from stages.lqcd.dirac.wilson_schur import WilsonSchur
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.eigen.eigenpairs import Eigenpairs
from stages.lqcd.gauge.hisq import StaggeredLinks, asqtad_links, hisq_links
from stages.lqcd.gauge.wilson_links import NO_TWIST, WilsonLinks, wilson_links
from stages.lqcd.kernels.dispatch import Array, gpu_library
from stages.lqcd.kernels.fields import contiguous, converted
from stages.lqcd.kernels.link_forms import Packing
from stages.lqcd.kernels.transfer import to_device
from stages.lqcd.lattice.formats.gauge_file import GaugeField
from stages.lqcd.lattice.geometry import EVEN, Lattice
from stages.lqcd.multigrid.hierarchy import Hierarchy
from stages.lqcd.multigrid.levels import LevelNumbers, check_levels, default_levels, multigrid_of
from stages.lqcd.solvers.deflation import DeflatedSolver, StaggeredSpace
from stages.lqcd.solvers.even_odd import EvenOdd, full_residual
from stages.lqcd.solvers.frame import MAX_ITERATIONS, PRECISIONS, ReliableUpdates
from stages.lqcd.solvers.named import MULTIGRID, Solve
from stages.lqcd.solvers.solution import Progress, Solution
from stages.lqcd.spectroscopy.low_propagator import LowPropagator

Boundary = str | Sequence[str]
Precision = Literal["double", "double-single", "double-half"]
LANCZOS_BLOCK = 8
MULTIGRID_LEVEL = {"smoothing": 8, "refinements": 2}
MULTIGRID_SEED = 20090311
BACKENDS = ("cpu", "cuda")
KINDS = tuple("biufc")
"""Of NumPy's dtypes, those of numbers."""
OF_WILSON = {"batched_cg": "cgnr"}
"""Solvers that another name has for operators that are not positive definite."""

Thin = GaugeField | tuple[Array, Lattice]
"""A gauge field that was read, or links ``[mu, parity, site, 3, 3]`` and their lattice."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_WORK = RLock()


def one_at_a_time(work: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function, for which threads wait for each other."""

    @wraps(work)
    def waiting(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
        with _WORK:
            return work(*arguments, **options)

    return waiting


@dataclass(frozen=True, repr=False, eq=False)
class Operator(MadeOf):
    """A Dirac operator at one mass, or its normal operator on the even sites.

    matrix: the library's, in double precision: a `NormalOperator`, `StaggeredOperator` or `WilsonOperator`.
    words: it in a line.
    """

    matrix: Any
    words: str
    _laid_out: dict[Packing, Any] = field(default_factory=dict)

    made_of = "matrix"
    __array_ufunc__ = None  # so that NumPy does not take it for an array

    def __repr__(self) -> str:
        where = "CPU" if self.xp is np else "GPU"
        return f"{self.words} on {self.matrix.dslash.lattice} ({where})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of a field without its last axis, the right-hand sides."""
        return self.matrix.shape

    @one_at_a_time
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

        Raises InputError for a field of another shape, and for what is no array of numbers.
        """
        if isinstance(b, np.ma.MaskedArray) or getattr(getattr(b, "dtype", None), "kind", "") not in KINDS:
            raise InputError(
                f"a field of {self!r} is a NumPy or CuPy array of numbers, got {_kind(b)}: give "
                "np.asarray(b, complex)"
            )
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


@dataclass(frozen=True, repr=False, eq=False)
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
        check_number("mass", mass)
        return Operator(NormalOperator(self.dslash, mass), f"4 m^2 - D^2, {self.words}, m = {mass:g}")

    def full(self, mass: float) -> Operator:
        """M = 2 m + D on both parities, ``[parity, site, 3, N]``."""
        check_number("mass", mass)
        NormalOperator(self.dslash, mass)  # it is solved by that of one parity, which checks the mass
        return Operator(StaggeredOperator(self.dslash, mass), f"2 m + D, {self.words}, m = {mass:g}")


def hisq(field: Thin, *, boundary: Boundary, naik_epsilon: float, backend: str = "cpu") -> Staggered:
    """HISQ quarks on a gauge field that was read, or on (links, lattice); arguments as of `hisq_links`.

    Raises InputError.
    """
    links, lattice = _thin("hisq", field, backend)
    check_number("naik_epsilon", naik_epsilon)
    options: dict[str, Any] = {"boundary": boundary, "naik_epsilon": naik_epsilon, "backend": backend}
    return Staggered(hisq_links(links, lattice, **options), "HISQ")


def asqtad(field: Thin, *, boundary: Boundary, u0: float, backend: str = "cpu") -> Staggered:
    """Asqtad quarks; arguments as of `asqtad_links`. Raises InputError."""
    links, lattice = _thin("asqtad", field, backend)
    check_number("u0", u0)
    return Staggered(asqtad_links(links, lattice, boundary=boundary, u0=u0, backend=backend), "asqtad")


def wilson_clover(
    field: Thin,
    mass: float,
    *,
    boundary: Boundary,
    csw: float = 0.0,
    mu: float = 0.0,
    theta: Sequence[float] = NO_TWIST,
    backend: str = "cpu",
) -> Operator:
    """M of Wilson-clover quarks, ``[parity, site, 12, N]``; mu: a twisted mass, that of up, -mu of down.

    Other arguments as of `wilson_links`. Raises InputError.
    """
    links, lattice = _thin("wilson_clover", field, backend)
    check_number("mass", mass)
    check_number("mu", mu)
    for number in csw if isinstance(csw, tuple) else (csw,):
        check_number("csw", number)
    options: dict[str, Any] = {"boundary": boundary, "csw": csw, "theta": theta, "backend": backend}
    made: WilsonLinks = wilson_links(links, lattice, **options)
    words = f"Wilson{'-clover' if csw else ''}, mass = {mass:g}{f', mu = {mu:g}' if mu else ''}"
    return Operator(WilsonOperator(WilsonDslash(made), mass, mu), words)


def _thin(name: str, field: Thin, backend: str) -> tuple[Array, Lattice]:
    """Links and their lattice. Raises InputError for another thing, and for a backend that is none."""
    if backend not in BACKENDS:
        raise InputError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if backend == "cuda":
        gpu_library()
    if isinstance(field, GaugeField):
        return field.links, field.lattice
    if isinstance(field, tuple) and len(field) == 2 and isinstance(field[1], Lattice):
        return field
    raise InputError(f"{name} takes a field as of read_gauge, or (links, lattice), got {_kind(field)}")


def _check_operator(name: str, A: Any) -> None:
    if not isinstance(A, Operator):
        remedy = ": give D.normal(mass) or D.full(mass)" if isinstance(A, Staggered) else ""
        raise InputError(f"{name} takes an operator first, got {_kind(A)}{remedy}")


def _kind(value: Any) -> str:
    """What something is, in a word."""
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__


@dataclass(frozen=True)
class Solver:
    """A solver of operators of this module: call it with one and with right-hand sides.

    name: of `stages.lqcd.solvers.named`. precision: 'double', 'double-single' or 'double-half' inside;
    residuals are in double. space: deflated. hierarchy, links: of multigrid, and what it was set up for.
    """

    name: str
    tolerance: float
    precision: str = "double-single"
    max_iterations: int = MAX_ITERATIONS
    space: LowModes | None = None
    hierarchy: Hierarchy | None = field(default=None, repr=False)
    links: WilsonLinks | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_number("tolerance", self.tolerance)
        if self.precision not in PRECISIONS:
            raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")
        ReliableUpdates(self.tolerance, self.max_iterations)  # which checks them

    @one_at_a_time
    def __call__(
        self,
        A: Operator,
        b: Array,
        x0: Array | None = None,
        on_failure: str = "raise",
        progress: Progress | None = None,
    ) -> Solution:
        """The solution of A x = b, x of the shape of b where A works.

        b: ``[*A.shape, N]`` or ``[*A.shape]``, on the host or the GPU. x0: a guess, of the shape of b.
        on_failure: 'raise' or 'return'. progress: called with the iteration and the estimated residuals.
        An operator on both parities is solved through its even-odd system; `residual` is that of A x = b.
        Raises NotConverged, and InputError where solver and operator do not fit, or half precision is asked
        of a CPU.
        """
        _check_operator("a solver", A)
        if self.precision == "double-half" and A.xp is np:
            raise InputError(
                "precision 'double-half' has kernels on a GPU only; on a CPU it would take many times as "
                "long as single: give precision='double-single', or make the operator with backend='cuda'"
            )
        block, restored = A.block_of(b)
        M = A.laid_out(block.shape[-1], self.precision)
        if self.hierarchy is not None and self.links is not M.dslash.links:
            raise InputError(f"multigrid was set up for other links than those of {A!r}: set it up for it")
        method = self.method(M)
        guess = None
        if x0 is not None:
            guess, _ = A.block_of(x0)
            if guess.shape != block.shape:
                raise InputError(f"x0 must have the shape of b, got {list(x0.shape)} and {list(b.shape)}")
            if isinstance(method, EvenOdd):
                guess = guess[EVEN]
        options: dict[str, Any] = {"x0": guess, "on_failure": on_failure, "progress": progress}
        solution = method.solve(M, block, **options)
        if not isinstance(M, NormalOperator):
            missed = full_residual(M, solution.x, block)
            solution = replace(solution, residual=np.where(np.isnan(solution.residual), np.nan, missed))
        return replace(solution, x=restored(solution.x))

    def method(self, M: Any) -> Any:
        """The library's solver for its operator M."""
        settings = Solve(self.name, self.tolerance, self.precision, self.max_iterations)
        if isinstance(M, WilsonOperator):
            if self.space is not None:
                raise InputError("these low modes are of staggered quarks and deflate no Wilson operator")
            regular = replace(settings, solver=OF_WILSON.get(self.name, self.name))
            return EvenOdd(regular.of_regular(self.hierarchy), WilsonSchur)
        positive = settings.of_positive()
        solver = positive if self.space is None else DeflatedSolver(positive, self.space.space)
        return solver if isinstance(M, NormalOperator) else EvenOdd(solver, StaggeredSchur)


def cg(
    tolerance: float, precision: Precision = "double-single", max_iterations: int = MAX_ITERATIONS
) -> Solver:
    """Batched CG: each right-hand side has its own coefficients; of Wilson quarks on normal equations."""
    return Solver("batched_cg", tolerance, precision, max_iterations)


def block_cg(
    tolerance: float, precision: Precision = "double-single", max_iterations: int = MAX_ITERATIONS
) -> Solver:
    """Block CGrQ: all right-hand sides share one Krylov space (arXiv:1710.09745)."""
    return Solver("block_cgrq", tolerance, precision, max_iterations)


def bicgstab(
    tolerance: float, precision: Precision = "double-single", max_iterations: int = MAX_ITERATIONS
) -> Solver:
    """BiCGstab, of Wilson quarks."""
    return Solver("bicgstab", tolerance, precision, max_iterations)


@one_at_a_time
def multigrid(
    M: Operator,
    tolerance: float,
    precision: Precision = "double-single",
    levels: Sequence[LevelNumbers] | None = None,
    max_iterations: int = MAX_ITERATIONS,
) -> Solver:
    """GCR preconditioned by adaptive multigrid (arXiv:1303.1377), which is set up here for M.

    M: of Wilson quarks. levels: as `multigrid_of`, by default aggregates of 4 sites in a direction and 24
    vectors. Raises InputError, and PoorSetup.
    """
    _check_operator("multigrid", M)
    solver = Solver(MULTIGRID, tolerance, precision, max_iterations)
    if not isinstance(M.matrix, WilsonOperator):
        raise InputError(f"multigrid is for Wilson quarks, got {M!r}: solve staggered ones by cg or block_cg")
    lattice = M.matrix.dslash.lattice
    chosen = levels or [MULTIGRID_LEVEL | level for level in default_levels(lattice)]
    check_levels(chosen, lattice)
    hierarchy = multigrid_of(chosen, MULTIGRID_SEED).setup(M.matrix)
    return replace(solver, hierarchy=hierarchy, links=M.matrix.dslash.links)


@dataclass(frozen=True, repr=False, eq=False)
class LowModes:
    """The lowest eigenpairs of -D^2 on the even sites, which are those of 4 m^2 - D^2 at every mass.

    pairs: values, vectors ``[site, 3, k]``, residuals and how they were found.
    """

    pairs: Eigenpairs
    dslash: StaggeredDslash

    def __repr__(self) -> str:
        return f"{len(self)} low modes on {self.dslash.lattice}"

    def __len__(self) -> int:
        return len(self.pairs.values)

    @cached_property
    def space(self) -> StaggeredSpace:
        """The span of the modes, for deflation of both parities; no operator is applied to them again."""
        return StaggeredSpace(self.dslash, self.pairs.space)

    @cached_property
    def propagator(self) -> LowPropagator:
        """M^-1 of the modes and their odd partners, for meson fields and what they leave."""
        return LowPropagator.of(self.dslash, self.pairs.space)

    def deflate(self, solver: Solver) -> Solver:
        """A solver with these modes projected out, for any mass and either parity. Raises InputError."""
        if not isinstance(solver, Solver):
            raise InputError(f"deflate takes a solver, as cg(1e-10), got {_kind(solver)}")
        return replace(solver, space=self)


@one_at_a_time
def lowest(A: Operator, vectors: int, tolerance: float = 1e-8, **options: Any) -> LowModes:
    """The lowest eigenpairs of an operator of staggered quarks, without its mass, by block Lanczos.

    tolerance: of |B v - lambda v|, relative to the largest eigenvalue. options: of `BlockLanczos`, as block
    and subspace. Raises InputError, and EigenpairsNotConverged.
    """
    _check_operator("lowest", A)
    if isinstance(A.matrix, WilsonOperator):
        raise InputError(f"low modes are those of staggered normal operators, got {A!r}")
    known = [each.name for each in fields(BlockLanczos) if each.name not in ("vectors", "tolerance")]
    for name in set(options) - set(known):
        raise InputError(f"lowest has no option {name!r}{suggestion(name, known)}")
    method = BlockLanczos(vectors, **{"block": LANCZOS_BLOCK, "tolerance": tolerance} | options)
    dslash = A.matrix.dslash.laid_out(Packing.of(method.block, "double"))
    return LowModes(method.solve(NormalOperator(dslash, A.matrix.mass).massless), A.matrix.dslash)
