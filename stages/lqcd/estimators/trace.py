"""Contractions of solutions into the vector current and the scalar density, for any block of sources.

For sources eta on the sites of parity p (o the opposite parity), with A = 4 m^2 - D_po D_op on p:

    y = A^-1 eta,   z = D_op y,
    J_mu(t) = - Im sum_{x in t} eta(x)^dag eta_mu(x) U_mu(x) z(x + mu),      density = (2/V) 2 m Re eta^dag y,

whose sums over sources with <eta eta^dag> = 1 on p are the parts from p of MILC's one-link taste-singlet
current J_mu(t) = - sum_x Im tr { eta_mu(x) U_mu(x) [D (4 m^2 - D^2)^-1](x + mu, x) } (forward shift only,
nearly conserved) and, per parity, of its psibar-psi = (2/V) tr M^-1, M = 2 m + D.

With a deflation P projects on the lowest modes and their partners, and eta is replaced by (1 - P) eta, as
source and in the contraction. Since A^-1 and D commute with P, the sum over sources is the part of the trace
that the modes leave: the rest is exact (`stages.lqcd.estimators.low_modes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import DisagreementError, InputError
from stages.lqcd.dirac.staggered import NormalOperator, StaggeredDslash
from stages.lqcd.estimators.loop_witness import LoopWitness
from stages.lqcd.gauge.hisq import StaggeredLinks
from stages.lqcd.kernels import block_blas, slice_products
from stages.lqcd.kernels.checksum import checksum
from stages.lqcd.kernels.dispatch import Array, as_numpy
from stages.lqcd.kernels.fields import contiguous
from stages.lqcd.lattice.geometry import EVEN, ODD, Lattice
from stages.lqcd.solvers.deflation import StaggeredSpace
from stages.lqcd.solvers.even_odd import relative_norms
from stages.lqcd.solvers.solution import Solver, SolveStatistics

CURRENT_LINKS = ("thin", "smeared", "fat")


class Contractions(NamedTuple):
    """Current ``[N, mu, t]`` and density ``[N]`` of each source, float64 on the host."""

    current: NDArray[np.float64]
    density: NDArray[np.float64]


@dataclass(frozen=True)
class LoopTrace:
    """Traces with the propagator of one mass: `solver` solves the even-odd normal operator of `dslash`.

    current_links: the links of the current. deflation: if given, traces are those of the remainder orthogonal
    to its modes.
    """

    dslash: StaggeredDslash
    current_links: CurrentLinks
    mass: float
    solver: Solver
    deflation: StaggeredSpace | None = None
    statistics: SolveStatistics = field(default_factory=SolveStatistics)
    iterated: Callable[[int, NDArray[np.float64]], None] | None = None
    """Called after each iteration of a solve with its number and the relative residuals."""
    witness: LoopWitness | None = None
    """Sees all solves and contractions, if given."""

    flavours = ()

    @property
    def lattice(self) -> Lattice:
        return self.dslash.lattice

    def contract(self, parity: int, sources: Array) -> Contractions:
        """Solves for sources ``[site, 3, N]`` on `parity` and contracts each solution with its own source.

        Raises what the solver raises, and InputError for a mass that is not positive.
        """
        sources = self.deflated(parity, sources)
        y, hopped = self.solve(parity, sources)
        return Contractions(self.current(parity, sources, hopped), self.density(sources, y))

    def deflated(self, parity: int, sources: Array) -> Array:
        """(1 - P) of the sources where there is a deflation, else the sources."""
        return sources if self.deflation is None else self.deflation.on(parity).remainder(sources)

    def solve(self, parity: int, sources: Array) -> tuple[Array, Array]:
        """Solution y = A^-1 eta on `parity` and D y on the opposite one, ``[site, 3, N]`` each."""
        A = NormalOperator(self.dslash, self.mass, parity)
        solution = self.solver.solve(A, sources, progress=self.iterated)
        hopped = self.dslash.apply_to(1 - parity, solution.x)
        self.statistics.add(solution, self._full_residual(parity, sources, solution.x, hopped))
        if self.witness:
            self.witness.solved(parity, sources, solution.x, hopped, solution.residual)
        return solution.x, hopped

    def current(self, parity: int, bra: Array, hopped: Array) -> NDArray[np.float64]:
        """- Im sum_{x in t} bra(x)^dag eta_mu(x) U_mu(x) hopped(x + mu), bra on `parity`; ``[N, mu, t]``."""
        links = self.current_links.of(parity)
        current = as_numpy(slice_products.one_link_current(links, bra, hopped, self.lattice, parity))
        if self.witness:
            self.witness.contracted(parity, bra, hopped, current)
        return current

    def density(self, sources: Array, y: Array) -> NDArray[np.float64]:
        """(2/V) 2 m Re eta^dag y, ``[N]``."""
        return 4 * self.mass / self.lattice.volume * self.dots(sources, y)

    def dots(self, x: Array, y: Array) -> NDArray[np.float64]:
        """Re x^dag y of each right-hand side, ``[N]`` on the host."""
        return as_numpy(block_blas.dots(x, y)).real

    def _full_residual(self, parity: int, sources: Array, y: Array, hopped: Array) -> NDArray[np.float64]:
        """|eta - M x| / |eta| of x = (2 m - D) y, the solution of the full system; float64 ``[N]``.

        M x is 4 m^2 y - D hopped on the sources' parity, and on the other one 2 m (D y - hopped) = 0.
        """
        residual = self.dslash.apply_to(parity, hopped, diagonal=y, a=-4 * self.mass**2)
        block_blas.add(residual, sources)
        return relative_norms(residual, sources)


class CurrentLinks:
    """The links of a current, made when a contraction first reads them, of one parity at a time.

    links: of the operator. choice: 'thin', 'smeared' or 'fat', as for `current_links`. Raises InputError.
    """

    def __init__(self, links: StaggeredLinks, choice: str = "thin") -> None:
        _check_choice(links, choice)
        self._links, self._choice = links, choice
        self._made: dict[int, tuple[Array, int]] = {}
        """By parity, with their checksums."""

    def of(self, parity: int) -> Array:
        """The links that begin at sites of `parity`, ``[mu, site, 3, 3]``; kept until the others are wanted.

        Raises DisagreementError (`stages.lqcd.gauge.origin`, `unchanged`).
        """
        if parity not in self._made:
            self._drop()  # their memory is needed
        return self._kept(parity)

    def of_both(self) -> tuple[Array, Array]:
        """The links of the even and of the odd sites, kept at once; raises as `of`."""
        even, odd = map(self._kept, (EVEN, ODD))
        return even, odd

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Raises DisagreementError if links change in memory while they are kept in the block."""
        try:
            yield
        finally:
            self._drop()

    def _kept(self, parity: int) -> Array:
        if parity not in self._made:
            links = self._make(parity)
            self._made[parity] = links, checksum(links)
        return self._made[parity][0]

    def _drop(self) -> None:
        made, self._made = self._made, {}
        if any(checksum(links) != total for links, total in made.values()):
            raise DisagreementError("links of the current changed in memory while they were in use")

    def _make(self, parity: int) -> Array:
        if self._choice == "thin":
            return self._links.thin(parity)
        return contiguous(current_links(self._links, self._choice)[:, parity])


def current_links(links: StaggeredLinks, choice: str) -> Array:
    """The links of the current, phases and boundary signs in them.

    'thin': reunitarised, unsmeared, MILC's choice; 'smeared': smeared once and projected to U(3), the W of
    HISQ; 'fat': the one-hop links of the operator. Raises InputError, also for 'smeared' where there is no
    smearing.
    """
    _check_choice(links, choice)
    if choice == "fat":
        return links.fat
    return links.thin() if choice == "thin" else links.smeared()


def _check_choice(links: StaggeredLinks, choice: str) -> None:
    if choice not in CURRENT_LINKS:
        raise InputError(f"the current's links must be one of {', '.join(CURRENT_LINKS)}, got {choice!r}")
    if choice == "smeared" and not links.unitary:
        raise InputError("this action has no smeared links for the current: choose 'thin' or 'fat'")


Progress = Callable[[int, int], None]
"""Called with (blocks of right-hand sides done, blocks in all)."""


def no_progress(done: int, total: int) -> None:
    """Ignore the progress of a computation."""
