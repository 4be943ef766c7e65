"""Coarse-grid deflation of the staggered normal operator A = 4 m^2 - D_eo D_oe, at every mass m.

The low modes of B = -D_eo D_oe are locally alike (local coherence, arXiv:0706.2298): vectors that span some
of them, cut to aggregates and made orthonormal there, nearly span all. They come from noise by a Chebyshev
filter of B, which amplifies what lies below its window. The Galerkin operator A_c = P^H A P has the mass as a
shift: one space serves every mass. It preconditions flexible conjugate gradients in the form A-DEF2 (J. M.
Tang and others, J. Sci. Comput. 39 (2009) 340; of domain-wall quarks arXiv:2409.03904),

    1  z = q(A) r,  r - A z = p(A) r       smoother: Chebyshev polynomial of n products on (low, high + 4 m^2)
    2  z += P A_c^-1 P^H (r - A z)         coarse correction, to a loose tolerance

and a solve starts from P A_c^-1 P^H b. All of this is in single precision, whatever that of residuals is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from typing import Any, Unpack, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from stages.base.errors import InputError, check_whole
from stages.lqcd.dirac.operator import affine
from stages.lqcd.dirac.staggered import NormalOperator, SquaredDslash, StaggeredDslash
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.eigen.chebyshev import ChebyshevFilter, RepeatedFilter
from stages.lqcd.eigen.window import estimate_spectrum
from stages.lqcd.kernels import block_blas
from stages.lqcd.kernels.dispatch import Array, to_device_like
from stages.lqcd.kernels.fields import converted, copied, field_like, zeros_like
from stages.lqcd.kernels.host_lapack import in_one_blas_thread
from stages.lqcd.lattice.geometry import EVEN
from stages.lqcd.multigrid.aggregates import Extents, Grid, Transfer, aggregates, prolongation, random_fields
from stages.lqcd.multigrid.coarse_normal import CoarseNormal, galerkin_normal
from stages.lqcd.multigrid.hierarchy import FINGERPRINT_SEED, FINGERPRINT_TOLERANCE
from stages.lqcd.solvers.cg import BatchedCG
from stages.lqcd.solvers.deflation import DeflatedSolver
from stages.lqcd.solvers.flexible_cg import FlexibleCG
from stages.lqcd.solvers.frame import MAX_ITERATIONS
from stages.lqcd.solvers.solution import Solution, SolveOptions
from stages.lqcd.solvers.space import Correction, Space

DIRECT_UNKNOWNS = 2048
"""Largest coarse system that is inverted, by Cholesky's factors, at every mass."""

MOST_VECTORS = 64
"""Vectors of an aggregate: they are filtered as one block of right-hand sides."""

SMOOTHED = 17.5
"""The smoother's window of n products begins at 1 / (17.5 n) of its upper end."""

MOST_COARSE = 20_000
"""Iterations of one coarse solve."""

MODES_TOLERANCE = 1e-5
"""Of coarse eigenvectors, in units of the largest eigenvalue."""


@dataclass(frozen=True)
class CoarseDeflation:
    """Parameters of a space.

    aggregate: extents (x, y, z, t) of the aggregates. vectors: of each. degree, edge: of the filter, whose
    window begins at `edge` times the largest eigenvalue of B. modes: eigenvectors of the coarse operator that
    deflate its solves, if it has more than `direct` unknowns; smaller ones are inverted. seed: of the noise.
    """

    aggregate: Extents = (4, 4, 4, 4)
    vectors: int = 48
    degree: int = 80
    edge: float = 0.01
    modes: int = 64
    direct: int = DIRECT_UNKNOWNS
    seed: int = 20240903

    def __post_init__(self) -> None:
        if np.shape(self.aggregate) != (4,) or not all(isinstance(n, Integral) for n in self.aggregate):
            raise InputError(f"an aggregate has four extents (x, y, z, t), got {self.aggregate!r}")
        object.__setattr__(self, "aggregate", tuple(int(n) for n in self.aggregate))
        check_whole("vectors of a coarse space", self.vectors, 1)
        check_whole("degree of a coarse space", self.degree, 1)
        check_whole("modes of a coarse space", self.modes, 0)
        if self.vectors > MOST_VECTORS:
            raise InputError(f"a coarse space takes at most {MOST_VECTORS} vectors, got {self.vectors}")
        if not 0 < self.edge < 1:
            raise InputError(
                f"edge of the filter of a coarse space must lie between 0 and 1, got {self.edge}"
            )

    @in_one_blas_thread
    def setup(self, dslash: StaggeredDslash) -> CoarseSpace:
        """The space of D.

        Raises InputError where aggregates do not divide the lattice or have too few components, and where
        the vectors are linearly dependent on one.
        """
        blocks = aggregates(Grid(dslash.lattice.extents), self.aggregate)
        B = SquaredDslash(dslash.astype(np.complex64), EVEN)
        high = estimate_spectrum(B, self.seed, int(np.prod(B.shape))).high
        noise = random_fields((*B.shape, self.vectors), np.complex64, dslash.links.fat, self.seed)
        filter_ = ChebyshevFilter(self.edge * high, high, self.degree)
        vectors, _ = RepeatedFilter(B).apply(filter_, noise, field_like(noise))
        P, _ = prolongation(blocks, vectors)
        coarse = galerkin_normal(SquaredDslash(dslash, EVEN), P)
        return CoarseSpace(
            dslash, P.for_cycles().without_vectors(), coarse, high, self.direct, self._modes(coarse)
        )

    def _modes(self, coarse: CoarseNormal) -> Space | None:
        if not self.modes or coarse.unknowns <= self.direct:
            return None
        return BlockLanczos(self.modes, tolerance=MODES_TOLERANCE, seed=self.seed).solve(coarse).space


@dataclass(frozen=True, eq=False)
class CoarseSpace:
    """P, and the coarse operator of m = 0.

    high: an upper bound of the eigenvalues of B. direct: unknowns up to which the coarse operator is
    inverted. modes: coarse eigenvectors, or None.
    """

    dslash: StaggeredDslash
    transfer: Transfer
    coarse: CoarseNormal
    high: float
    direct: int = DIRECT_UNKNOWNS
    modes: Space | None = None
    _inverses: dict[float, Array] = field(default_factory=dict, repr=False)

    def solver(self, tolerance: float = 1e-10, **settings: Any) -> CoarseGridSolver:
        """Solver of A at every mass; settings: as of `CoarseGridSolver`."""
        return CoarseGridSolver(self, tolerance, **settings)

    def check(self, A: Any) -> None:
        """Raises InputError unless A is the normal operator on even sites of the same D."""
        if not isinstance(A, NormalOperator) or A.parity != EVEN:
            raise InputError(
                "a coarse space is for 4 m^2 - D^2 of staggered quarks on even sites, got "
                f"{type(A).__name__}{' on odd sites' if isinstance(A, NormalOperator) else ''}"
            )
        if A.dslash.links is self.dslash.links:
            return
        if A.shape != (shape := SquaredDslash(self.dslash).shape):
            raise InputError(f"the coarse space is one of fields {shape}, the operator has {A.shape}")
        distance = abs(fingerprint(A.dslash) - self.fingerprint)
        if not distance < FINGERPRINT_TOLERANCE:
            raise InputError(
                "the coarse space is one of another operator or gauge field (x^H B x / |x|^2 differs by "
                f"{distance:.2g}): make it for these links, boundary condition and naik_epsilon"
            )

    @cached_property
    def fingerprint(self) -> float:
        """That of the operator it was made for."""
        return fingerprint(self.dslash)

    def inverse(self, shift: float) -> Array:
        """A_c^-1 of a small coarse operator at a shift, a matrix in complex64, computed in double and kept.

        Raises InputError where A_c is not positive within rounding.
        """
        if shift not in self._inverses:
            matrix = self.coarse.dense()
            matrix[np.diag_indices(len(matrix))] += shift
            try:
                factor = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True)
            except np.linalg.LinAlgError as error:
                raise InputError(
                    f"the coarse operator is not positive at 4 m^2 = {shift:.2g} in single precision: use a "
                    "larger mass, or cg"
                ) from error
            whole = scipy.linalg.cho_solve(factor, np.eye(len(matrix), dtype=complex), overwrite_b=True)
            self._inverses[shift] = to_device_like(whole.astype(np.complex64), self.coarse.packed.neighbours)
        return self._inverses[shift]


def fingerprint(dslash: StaggeredDslash) -> float:
    """x^H B x / |x|^2 of a fixed random x in double precision, for B = -D_eo D_oe."""
    B = SquaredDslash(dslash.astype(np.complex128), EVEN)
    x = random_fields((*B.shape, 1), np.complex128, dslash.links.fat, FINGERPRINT_SEED)
    return float((block_blas.dots(x, B.apply(x)).real / block_blas.norms2(x))[0])


@dataclass(frozen=True)
class CoarseGridSolver:
    """Flexible CG preconditioned by a coarse space, for A at every mass on even sites.

    tolerance, max_iterations, precision: as of other solvers, but for 'double-half'. products: of the
    smoother. low: where its window begins, over `space.high`; None: by its degree. coarse_tolerance: on the
    residual of coarse solves; small coarse systems are inverted.
    """

    space: CoarseSpace
    tolerance: float = 1e-10
    max_iterations: int = MAX_ITERATIONS
    precision: str = "double-single"
    products: int = 8
    low: float | None = None
    coarse_tolerance: float = 0.1

    def __post_init__(self) -> None:
        self.cg  # noqa: B018 - which checks its settings
        BatchedCG(self.coarse_tolerance)
        if self.products < 1:
            raise InputError(f"products of the smoother must be at least 1, got {self.products}")
        if self.low is not None and not 0 < self.low < 1:
            raise InputError(f"low of the smoother must lie between 0 and 1, got {self.low}")

    @property
    def cg(self) -> FlexibleCG:
        return FlexibleCG(self.tolerance, self.max_iterations, self.precision)

    def solve(self, A: Any, b: Array, **options: Unpack[SolveOptions]) -> Solution:
        """Solution of A x = b, by `KrylovSolver.solve`; `matvecs` counts products of the smoother, too.

        extras: 'coarse_iterations', those of coarse solves. Raises InputError for an operator that is not of
        the space.
        """
        self.space.check(A)
        K = self.preconditioner(A)
        options["deflate"] = cast(Correction, CoarseGuess(K))
        solution = replace(self.cg, preconditioner=K).solve(A, b, **options)
        solution.extras["coarse_iterations"] = K.coarse.iterations
        return solution

    def preconditioner(self, A: NormalOperator) -> ADEF2:
        """A-DEF2 of A."""
        low = self.low or 1 / (SMOOTHED * self.products)
        window = ChebyshevFilter(low * self.space.high, self.space.high + A.shift, self.products)
        coarse = CoarseSolves(self.space, A.shift, self.coarse_tolerance)
        return ADEF2(A.astype(np.complex64), self.space.transfer, window, coarse)


class CoarseSolves:
    """About A_c^-1 at a shift; iterations: of all solves so far, those of a block counted once."""

    def __init__(self, space: CoarseSpace, shift: float, tolerance: float) -> None:
        self.A = replace(space.coarse, shift=shift)
        self.iterations = 0
        self.inverse = space.inverse(shift) if self.A.unknowns <= space.direct else None
        cg = BatchedCG(tolerance, MOST_COARSE)
        self.solver = cg if space.modes is None else DeflatedSolver(cg, space.modes)

    def __call__(self, b: Array) -> Array:
        if self.inverse is not None:
            return (self.inverse @ b.reshape(len(self.inverse), -1)).reshape(b.shape)
        solution = self.solver.solve(self.A, b, on_failure="return")
        self.iterations += solution.iterations
        return solution.x


@dataclass(frozen=True, eq=False)
class ADEF2:
    """A-DEF2 of A in complex64, with a smoother whose residual polynomial has the roots of `window`."""

    A: NormalOperator
    transfer: Transfer
    window: ChebyshevFilter
    coarse: CoarseSolves

    @property
    def dtype(self) -> np.dtype:
        return self.A.dtype

    @property
    def products(self) -> int:
        return self.window.degree

    def apply(self, x: Array) -> Array:
        """About A^-1 x."""
        y, residual, spare = zeros_like(x), copied(x), field_like(x)
        for root in self.window.roots:
            block_blas.affine(y, 1.0, residual, 1 / root)
            affine(self.A, 1.0, -1 / root, residual, spare)
            residual, spare = spare, residual
        self.add_coarse(residual, y)
        return y

    def add_coarse(self, residual: Array, y: Array) -> None:
        """``y += P A_c^-1 P^H residual``."""
        self.transfer.add_prolonged(self.coarse(self.transfer.restrict(residual)), y)


@dataclass(frozen=True, eq=False)
class CoarseGuess:
    """Corrections of true residuals by the coarse grid, in the interface of a deflation space."""

    K: ADEF2

    def __len__(self) -> int:
        """Dimension of the coarse space."""
        return self.K.coarse.A.unknowns

    def __call__(self, residual: Array) -> tuple[Array, NDArray[np.float64]]:
        """The correction y ``[*shape, N]``, and zeros ``[N]`` for what A y adds beside the space."""
        r = converted(residual, self.K.dtype)
        y = zeros_like(r)
        self.K.add_coarse(r, y)
        return converted(y, residual.dtype), np.zeros(r.shape[-1])
