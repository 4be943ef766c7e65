"""Stages of low modes: eigenvectors of the massless operator, once per configuration, for all masses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from pipeline import At, Dims, Keyed, Resources, stage
from pipeline.declare.coordinates import Checkpoint
from stages.base.errors import InputError
from stages.loops.costs import deflation_cost, space_cost
from stages.lqcd.dirac.staggered import SquaredDslash, StaggeredDslash
from stages.lqcd.eigen.block_lanczos import BlockLanczos
from stages.lqcd.eigen.eigenpairs import Eigenpairs
from stages.lqcd.eigen.stored_vectors import (
    check_precision,
    from_store,
    polished,
    searched_in_single,
    to_store,
)
from stages.lqcd.kernels.dispatch import array_module
from stages.lqcd.lattice.geometry import EVEN
from stages.lqcd.solvers.deflation import StaggeredSpace
from stages.lqcd.solvers.space import Space, matrices_of
from stages.shared.costs import small


class DeflationSpace(NamedTuple):
    """The lowest eigenvectors v of B = -D_eo D_oe on the even sites, ascending; no mass enters.

    The odd partners D_oe v / sqrt(lambda) are derived when they are needed. `residual`, `gram` and
    `projected` are those of the vectors as they are stored, after rounding.
    """

    eigenvalue: Annotated[np.ndarray, Dims("eigenvector")]
    """lambda, float64, of the vectors before they were rounded."""
    residual: Annotated[np.ndarray, Dims("eigenvector")]
    """|B v - rho v| / |v| with v's Rayleigh quotient rho, float64."""
    gram: Annotated[np.ndarray, Dims("eigenvector", "partner")]
    """V^H V, complex128."""
    projected: Annotated[np.ndarray, Dims("eigenvector", "partner")]
    """V^H B V, complex128."""
    vectors: Annotated[
        np.ndarray,
        Dims("time", "site", "colour", "eigenvector", "part", pieces={"time": 1, "eigenvector": 16}),
    ]
    """Real and imaginary part of v on the even sites of a slice: float64, float32 or 16-bit codes."""
    scale: Annotated[np.ndarray, Dims("time", "site", "scaled", pieces={"time": 1, "scaled": 16})]
    """Of the codes, float32, by eigenvector; nothing for vectors in double or single."""


@dataclass(frozen=True)
class EigenSearch:
    """Settings of the search for eigenpairs, which alter them within their tolerance only.

    block: of Lanczos vectors. subspace: vectors held at a time; degree: of the Chebyshev filter; both are
    chosen unless given.
    """

    block: int = 8
    subspace: int | None = None
    degree: int | None = None
    max_restarts: int = 200


@stage(
    version="1",
    over=("config",),
    resources=Resources(device=1),
    keyed=Keyed(without=("block", "subspace", "degree", "max_restarts")),
    labels={"part": ("re", "im")},
    cost=space_cost,
)
def deflation_space(
    dslash: StaggeredDslash,
    *,
    at: At,
    vectors: int,
    tolerance: float = 1e-8,
    precision: str = "double",
    search: EigenSearch = EigenSearch(),
) -> DeflationSpace:
    """The `vectors` lowest eigenvectors by block Lanczos.

    To |B v - lambda v| <= tolerance x the largest eigenvalue, then rounded to `precision`: 'double',
    'single', or 'half' (16 bits with a scale per site). Rounded ones of a tolerance from 5e-5 on are searched
    in single precision.

    The key is that of the links (gauge field, action, boundary, naik_epsilon) with `vectors`, `tolerance` and
    `precision`; a mass is none of it. `search` says how the eigenpairs are found, and alters them within the
    tolerance only. So does the backend, and it is not in the key either: eigenvectors are unique up to a
    phase, those of one eigenvalue up to a rotation, but eigenvalues and projectors, which are all that
    deflated solves and low-mode loops depend on, agree to the tolerance. (Where the last vectors share an
    eigenvalue with the next one, the space is one of many that serve as well.) The start is a function of a
    fixed seed: a rerun on the same backend gives the same vectors. More vectors are another chunk, and
    are computed from the start.

    Goes on from `at.checkpoint` after a kill. Raises InputError, and EigenpairsNotConverged.
    """
    check_precision(precision)
    single = searched_in_single(precision, tolerance)
    searched = dslash.astype(np.complex64) if single else dslash.for_many_products()
    B = SquaredDslash(searched, EVEN)
    _check_count(vectors, 3 * dslash.lattice.half_volume, "the even sites of the lattice have")
    lanczos = BlockLanczos(
        vectors, search.block, tolerance, search.subspace, search.degree, max_restarts=search.max_restarts
    )
    settings = [search.block, search.subspace or 0, search.degree or 0]
    eigenpairs = lanczos.solve(B, progress=_progress_of(at), checkpoint=_checkpoint(at, settings))
    record(eigenpairs, at)
    eigenvalue, basis = eigenpairs.values, eigenpairs.vectors
    del eigenpairs
    parts, scale = to_store(basis, dslash.lattice, precision)
    if precision != "double":
        xp = array_module(basis)
        del basis  # its memory is needed
        basis = from_store(parts, scale, xp)
    gram, projected, residual = matrices_of(SquaredDslash(dslash, EVEN) if single else B, basis)
    at.record(precision=precision, residual_max=float(residual.max()))
    return DeflationSpace(eigenvalue, residual, gram, projected, parts, scale)


class Spectrum(NamedTuple):
    """The eigenvalues of a deflation space and the residuals of its vectors, as there."""

    eigenvalue: Annotated[np.ndarray, Dims("eigenvector")]
    residual: Annotated[np.ndarray, Dims("eigenvector")]


@stage(version="1", over=("config",), cost=small)
def spectrum(space: DeflationSpace) -> Spectrum:
    """The small part of a deflation space, for reports and exports; reads no vector."""
    return Spectrum(np.asarray(space.eigenvalue), np.asarray(space.residual))


@stage(version="1", over=("config",), transient=True, resident=True, cost=deflation_cost)
def deflation(
    dslash: StaggeredDslash, space: DeflationSpace, *, at: At, vectors: int | None = None
) -> StaggeredSpace:
    """The space, or its lowest `vectors`, where the solves run: complex128, or complex64 if it was rounded.

    Reads only those vectors, slice by slice. In a run the key says that the space is of these links; here
    true residuals of some vectors are compared with the recorded ones, which shows the space of another gauge
    field (`stages.lqcd.solvers.space.Space.check` says how small a difference). Vectors from 16 bits
    are then smoothed (`stages.lqcd.eigen.stored_vectors.polished`). Raises InputError for a space of another
    operator, and for more vectors than there are.
    """
    lattice, (times, sites, _, stored, _) = dslash.lattice, space.vectors.shape
    if (times, sites) != (lattice.time_extent, lattice.sites_per_slice):
        raise InputError(
            f"the deflation space has {times} time slices of {sites} even sites, the lattice {lattice} "
            f"{lattice.time_extent} of {lattice.sites_per_slice}: compute the space of this gauge field"
        )
    k = stored if vectors is None else vectors
    _check_count(k, stored, "the deflation space has")
    basis = from_store(space.vectors, space.scale, dslash.xp, k)
    gram, projected = (np.asarray(matrix)[:k, :k] for matrix in (space.gram, space.projected))
    lowest = StaggeredSpace(dslash, Space.of(basis, gram, projected, np.asarray(space.residual)[:k]))
    lowest.check()
    if space.vectors.dtype == np.uint16:
        lowest = StaggeredSpace(dslash, polished(lowest.even, SquaredDslash(dslash, EVEN)))
    return lowest


def record(eigenpairs: Eigenpairs, at: At) -> None:
    """Keeps with the chunk how the eigenpairs were found."""
    at.record(
        restarts=eigenpairs.restarts,
        matvecs=eigenpairs.matvecs,
        eigensolve_seconds=eigenpairs.seconds,
        window=list(eigenpairs.window),
        degree=eigenpairs.degree,
        residual_before_rounding=float(np.max(eigenpairs.residuals)),
        eigenvalue_range=[float(eigenpairs.values[0]), float(eigenpairs.values[-1])],
        convergence=[[restart, converged, float(f"{r:.3e}")] for restart, converged, r in eigenpairs.history],
    )


class _OfSettings:
    """A checkpoint that counts as none where the eigensolver was set up otherwise, which no key says."""

    def __init__(self, checkpoint: Checkpoint, settings: list[int]) -> None:
        self._checkpoint, self._settings = checkpoint, np.array(settings)

    def load(self) -> dict[str, np.ndarray] | None:
        state = self._checkpoint.load()
        if state is None or not np.array_equal(state.pop("settings"), self._settings):
            return None
        return state

    def save(self, state: Callable[[], dict[str, np.ndarray]]) -> None:
        self._checkpoint.save(lambda: {**state(), "settings": self._settings})


def _checkpoint(at: At, settings: list[int]) -> _OfSettings | None:
    return _OfSettings(at.checkpoint, settings) if at.checkpoint else None


def _progress_of(at: At) -> Any:
    """Reports, after each restart, pairs converged and the largest residual of those wanted."""

    def report(restart: int, converged: int, wanted: int, residual: float) -> None:
        at.progress(converged, wanted, restarts=restart, residual=residual)

    return report


def _check_count(vectors: int, most: int, holder: str) -> None:
    if not 1 <= vectors <= most:
        raise InputError(f"{vectors} deflation vectors, but {holder} {most}: take 1 to {most}")
