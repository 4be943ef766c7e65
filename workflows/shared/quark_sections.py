"""Sections of a parameter file that workflows with Wilson-clover quarks have."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from stages.base.errors import InputError
from stages.ensemble.expected_solves import ExpectedSolves
from stages.ensemble.wilson_operator import Hops, wilson_operator
from stages.lqcd.dirac.wilson import WilsonOperator, kappa_of_mass, mass_of_kappa
from stages.lqcd.gauge.wilson_links import NO_TWIST
from stages.lqcd.kernels.aggregation import MOST_ON_GPU
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.multigrid.levels import check_levels, default_levels
from stages.lqcd.solvers.frame import MAX_ITERATIONS
from stages.lqcd.solvers.named import MULTIGRID, REGULAR
from workflows.parameter_file import FileSection, Location, Problem
from workflows.shared.sections import TOLERANCE, Extents, Seed, Usual, WorkflowParameters
from workflows.shared.solves_section import SolverSection

HEAVIEST = 1.0
"""Bare mass, in lattice units, above which Compton wavelengths are shorter than the lattice spacing."""
CLOVER = Usual(0.0, 3.0, "it is 1 at tree level, and about 2 at most")
TWIST = Usual(-1.0, 1.0, "it is a quark mass in lattice units")
ANGLE = Usual(-4.0, 4.0, "it is in units of pi: 1 is an antiperiodic boundary")
CLOVER_SHIFT = 0.2
"""Part of the critical mass of common ensembles that each unit of csw takes off, at least."""


class StoutSection(FileSection):
    """Stout smearing of the quark's links."""

    rho: float = Field(gt=0)
    """Weight of the staples."""
    steps: Annotated[int, Usual(1, 20, "so many leave little of the gauge field")] = Field(ge=1)
    """How often the links are smeared."""
    spatial: bool = False
    """Whether links in time are neither smeared nor used."""

    @property
    def stable(self) -> float:
        """The largest rho that damps all waves: those of momentum p by 1 - rho p^2, p^2 up to 16 or 12."""
        return 1 / 6 if self.spatial else 1 / 8

    def doubts(self) -> Iterator[Problem]:
        """A weight that roughens."""
        if self.rho > self.stable:
            yield (), f"rho = {self.rho} amplifies short waves: take at most {self.stable:.4g}"


class QuarkSection(FileSection):
    """A Wilson-clover quark, as Chroma defines it."""

    kappa: float | None = None
    """Hopping parameter, 1 / (2 mass + 8); give it or the mass."""
    mass: float | None = None
    """m = 1 / (2 kappa) - 4, lattice units; usually negative for light quarks."""
    csw: Annotated[float | None, CLOVER] = None
    """Clover coefficient of all planes; none is Wilson's action."""
    csw_r: Annotated[float | None, CLOVER] = None
    """Clover coefficient of spatial planes, instead of csw."""
    csw_t: Annotated[float | None, CLOVER] = None
    """Clover coefficient of temporal planes, instead of csw."""
    xi0: Annotated[float, Usual(1.0, 10.0, "anisotropic lattices are finer in time")] = Field(
        default=1.0, gt=0
    )
    """Bare anisotropy."""
    nu: Annotated[float, Usual(0.5, 2.0, "it is tuned near 1")] = Field(default=1.0, gt=0)
    """Chroma's nu: spatial hops have the weight nu / xi0."""
    stout: StoutSection | None = None
    """Smearing of the quark's links; default: none."""
    mu: Annotated[float | None, TWIST] = None
    """Twisted mass of M = D_W(mass) + i mu gamma5, lattice units; up has +mu, down -mu; default: no twist."""
    two_kappa_mu: Annotated[float | None, TWIST] = None
    """In place of mu: 2 kappa mu, as tmLQCD's input files have it."""
    boundary: Literal["periodic", "antiperiodic", "dirichlet"]
    """Boundary condition in time."""
    theta: Annotated[tuple[float, ...], Field(strict=False, min_length=4, max_length=4), ANGLE] = NO_TWIST
    """Phases exp(i pi theta / L) on all links along x, y, z, t, beside `boundary`; [0, 0, 0, 1] is an
    antiperiodic boundary in time spread over all links."""

    @model_validator(mode="after")
    def _one_of_each(self) -> QuarkSection:
        if (self.kappa is None) == (self.mass is None):
            raise ValueError("give either `kappa` or `mass`, and not both: mass = 1 / (2 kappa) - 4")
        if self.mu is not None and self.two_kappa_mu is not None:
            raise ValueError(
                "give either `mu` or `two_kappa_mu`, and not both: mu = two_kappa_mu / (2 kappa)"
            )
        if self.csw is not None and (self.csw_r is not None or self.csw_t is not None):
            raise ValueError("give either `csw`, or `csw_r` and `csw_t`, and not both")
        if (self.csw_r is None) != (self.csw_t is None):
            raise ValueError("`csw_r` and `csw_t` belong together: give both")
        try:
            kappa_of_mass(self.bare_mass)
        except InputError as error:
            raise ValueError(str(error)) from None
        if self.bare_mass < -self.hopping / 2:
            raise ValueError(
                f"{self.shown_mass} lies beyond the critical mass {-self.hopping / 2:g} of the strongest "
                "coupling: no ensemble has light quarks there"
            )
        return self

    def operator(self, solves: ExpectedSolves) -> partial[WilsonOperator]:
        """The stage that makes the operator for these solves."""
        return partial(
            wilson_operator,
            boundary=self.boundary,
            kappa=self.kappa,
            mass=self.mass,
            csw=self.clover,
            hops=Hops(self.xi0, self.nu, self.stout.model_dump() if self.stout else None),
            mu=self.twisted_mass,
            theta=self.theta,
            solves=solves,
        )

    @property
    def bare_mass(self) -> float:
        """m, however it is given."""
        return self.mass if self.mass is not None else mass_of_kappa(self.kappa or 0.0)

    @property
    def twisted_mass(self) -> float:
        """mu, however it is given; 0 without a twist."""
        if self.two_kappa_mu is not None:
            return self.two_kappa_mu * (self.bare_mass + 4)
        return self.mu or 0.0

    @property
    def shown_mass(self) -> str:
        """The mass for people, as it is given and as the other."""
        if self.mass is None:
            return f"kappa = {self.kappa:g} (mass {self.bare_mass:g})"
        return f"mass = {self.mass:g} (kappa {kappa_of_mass(self.mass):g})"

    @property
    def shown_twist(self) -> str:
        """The twisted mass for people, after the mass; nothing without one."""
        mu = self.twisted_mass
        return f", mu = {mu:g} (2 kappa mu {mu / (self.bare_mass + 4):g})" if mu else ""

    @property
    def hopping(self) -> float:
        """Sum of the weights of directions, 4 on isotropic lattices.

        Minus its half is the critical mass in the limit of strong coupling; that of free quarks is 0.
        """
        return 1 + 3 * self.nu / self.xi0

    @property
    def clover(self) -> float | tuple[float, float]:
        """csw, or (csw_r, csw_t)."""
        if self.csw_r is not None and self.csw_t is not None:
            return self.csw_r, self.csw_t
        return self.csw or 0.0

    def doubts(self) -> Iterator[Problem]:
        """Masses that are rarely meant."""
        if (key := "mu" if self.mu == 0 else "two_kappa_mu" if self.two_kappa_mu == 0 else None) is not None:
            yield (key,), "0 is no twist: both flavours are the same Wilson quark"
        shift = 1 - CLOVER_SHIFT * (min(self.clover) if isinstance(self.clover, tuple) else self.clover)
        if self.bare_mass < -self.hopping / 4 * shift:
            yield (
                (),
                f"{self.shown_mass} lies beyond the critical mass of common ensembles (kappa 0.125 "
                "free, about 0.17 at beta 5.7): solves may not converge, or give no pion",
            )
        elif self.bare_mass < 0 and (self.csw, self.csw_r) == (None, None):
            yield (
                (),
                f"{self.shown_mass} without `csw`: the action has no clover term, unlike that of "
                "common ensembles; if that is meant, write csw: 0",
            )
        elif self.bare_mass > HEAVIEST:
            yield (
                (),
                f"{self.shown_mass} is heavier than quarks that fit on the lattice: mass {HEAVIEST:g} "
                f"(kappa {kappa_of_mass(HEAVIEST):g}) at most",
            )


class QuarkSolves(SolverSection):
    """Solution for propagators, `block` right-hand sides at a time."""

    solvers: ClassVar = tuple(REGULAR)
    lighter: ClassVar = dict.fromkeys(("auto", MULTIGRID, "gcr"), ("bicgstab",))

    solver: Literal["auto", "multigrid", "bicgstab", "cgnr", "block_cgrq", "gcr"]
    """The method, or auto: all are measured on the first configuration, in precisions and blocks, and the
    cheapest is taken."""
    precision: Literal["double", "double-single", "double-half"] = "double-single"
    """Double throughout, or iterations in single or half with residuals recomputed in double. Half is for
    all but block_cgrq. With auto the coarsest that may be taken, finer ones are measured, too; left out, all
    are."""
    tolerance: Annotated[float, TOLERANCE] = Field(ge=1e-14, lt=1)
    """|b - A x| / |b| of the even-odd system."""
    max_iterations: int = Field(default=MAX_ITERATIONS, ge=1)
    """A solve that has not converged by then fails."""
    block: int = Field(default=24, ge=1, le=64)
    """Right-hand sides that are solved together; with auto wider and narrower blocks are measured, too."""


class LevelSection(FileSection):
    """A grid of multigrid that is not the coarsest."""

    aggregate: Extents
    """Sites along x, y, z and t of an aggregate, which becomes a site of the next grid."""
    vectors: int = Field(default=24, ge=1)
    """Test vectors, which aggregates are spanned by."""
    refinements: int = Field(default=2, ge=0)
    """Setup passes in which the hierarchy improves its own test vectors."""
    smoothing: int = Field(default=8, ge=1)
    """Steps after each coarse correction."""
    steps: int = Field(default=2, ge=1)
    """Most steps of GCR on the grid below in each cycle."""
    tolerance: float = Field(default=0.1, ge=0, lt=1)
    """Tolerance of GCR on the grid below in each cycle; GCR ends at `steps` or here."""

    def doubts(self) -> Iterator[Problem]:
        """A number of vectors that only CPUs can use."""
        if self.vectors > MOST_ON_GPU:
            yield (
                ("vectors",),
                f"{self.vectors} near-null vectors work on CPUs only: on a GPU at most {MOST_ON_GPU}",
            )


class MultigridSection(FileSection):
    """The hierarchy of `solver: multigrid`; default: levels that suit the lattice."""

    levels: Annotated[tuple[LevelSection, ...], Field(strict=False, min_length=1)] | None = None
    """Grids from the finest to the last but one; default: levels that suit the lattice."""
    seed: Seed = 20090311
    """Seed of the first test vectors."""

    def levels_on(self, lattice: Lattice) -> list[dict[str, Any]]:
        """Levels, as stages take them."""
        sections = self.levels or [LevelSection(**level) for level in default_levels(lattice)]
        return [{**level.model_dump(), "aggregate": list(level.aggregate)} for level in sections]


Flavours = Annotated[tuple[Literal["charged", "neutral"], ...], Field(strict=False, min_length=1)]
"""Mesons of a twisted doublet."""


class QuarkParameters(WorkflowParameters):
    """Parameters in the file of a workflow with Wilson-clover quarks."""

    quark: QuarkSection
    """The quark's action and mass."""
    solves: QuarkSolves
    """Solution for propagators."""
    multigrid: MultigridSection = MultigridSection()
    """Hierarchy of `solver: multigrid`."""

    def neutral_misfits(self, location: Location, flavours: Flavours) -> Iterator[Problem]:
        """Flavours of mesons that are one and the same."""
        if "neutral" in flavours and not self.quark.twisted_mass:
            text = "differ with a twisted quark only: give it a `mu`, or leave out neutral"
            yield location, f"neutral and charged mesons {text}"

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Levels of multigrid that do not fit the lattice, where multigrid may solve."""
        if self.solves.solver in (MULTIGRID, "auto"):
            try:
                check_levels(self.multigrid.levels_on(lattice), lattice)
            except InputError as error:
                yield ("multigrid", "levels"), str(error)
