"""Schema of a file of the workflow `laph_mesons`: its sections, limits, and what must fit together."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from stages.base.errors import InputError
from stages.distillation.current_insertion import Currents
from stages.distillation.laplace_eigenvectors import LaplaceEigenvectors, laplace_eigenvectors
from stages.distillation.perambulator import stochastic_columns
from stages.lqcd.dirac.displacement import steps_of
from stages.lqcd.distillation.columns import StochasticColumns
from stages.lqcd.distillation.eigenvectors import DTYPES
from stages.lqcd.distillation.laph_dilution import LaphDilution, Subsets
from stages.lqcd.eigen.lanczos import check_reachable
from stages.lqcd.kernels.gamma import SPINS
from stages.lqcd.lattice.geometry import Lattice
from stages.lqcd.spectroscopy.gammas import CHANNELS
from stages.lqcd.spectroscopy.operators import BASES, MesonOperator, words_of
from workflows import (
    FileSection,
    Flavours,
    LinkSmearingSection,
    Names,
    Problem,
    QuarkParameters,
    QuarkSolves,
    Seed,
    Times,
    Triples,
    Usual,
    aliases,
)

Row = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
Basis = Annotated[tuple[Row, ...], Field(strict=False, min_length=1)]
Bases = Annotated[tuple[Basis, ...], Field(strict=False, min_length=1)]


class DistillationSection(FileSection):
    """The space of the quark fields: the lowest eigenvectors of the Laplacian on each time slice."""

    vectors: int = Field(ge=1)
    """Lowest eigenvectors of the Laplacian on each time slice."""
    tolerance: Annotated[float, Usual(1e-13, 1e-4, "looser vectors span another space in each run")] = Field(
        default=1e-8, ge=1e-13, le=1e-2
    )
    """Residual tolerance for the squared operator, relative to 36, its largest possible eigenvalue."""
    precision: Literal["double", "single"] = "double"
    """Precision in which the vectors are stored."""
    block: int = Field(default=8, ge=1, le=32)
    """Vectors that the eigensolver works on at a time."""
    slices: int | None = Field(default=None, ge=2)
    """Time slices that are solved for, committed and repeated together; default: all."""

    @property
    def eigenvectors(self) -> partial[LaplaceEigenvectors]:
        """The stage that computes the vectors."""
        return partial(
            laplace_eigenvectors,
            vectors=self.vectors,
            tolerance=self.tolerance,
            precision=self.precision,
            block=self.block,
        )

    def contradictions(self) -> Iterator[Problem]:
        """A tolerance that the precision cannot reach."""
        try:
            check_reachable(self.tolerance, DTYPES[self.precision])
        except InputError as error:
            yield ("tolerance",), str(error)

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """More vectors than there are, and slices that do not divide the lattice."""
        space, slices = 6 * lattice.sites_per_slice, self.slices
        if self.vectors > space:
            yield (
                ("vectors",),
                f"{self.vectors} vectors, but a time slice of {lattice} has {space}: ask for at most {space}",
            )
        if slices is not None and (slices % 2 or lattice.time_extent % slices):
            yield (
                ("slices",),
                f"{slices} slices together must be even and divide the {lattice.time_extent} of {lattice}",
            )


class LaphSourceSection(FileSection):
    """Sources of quarks: time slices, and noise if there is any."""

    times: Times
    """Source slices; of noise that is not fully diluted in time, subsets of slices."""
    chunk: int = Field(default=1, ge=1)
    """Sources that are solved for, committed and repeated together."""


class LaphDilutionSection(FileSection):
    """Each index: full, interlace-n or none."""

    time: str = "full"
    """Dilution of times: full, interlace-n or none."""
    spin: str = "full"
    """Dilution of spins: full, interlace-n or none."""
    eigenvector: str = "none"
    """Dilution of eigenvectors: full, interlace-n or none."""


class LaphNoiseSection(FileSection):
    """Stochastic LapH instead of full distillation: noise on times, spins and eigenvectors, diluted."""

    kind: Literal["z2", "z4", "u1"]
    """Distribution of the noise: +-1; +-1 and +-i; or phases."""
    seed: Seed
    """Seed of the noise."""
    vectors: int = Field(ge=2)
    """Noise vectors; each of the two quark lines of a meson takes another one."""
    dilution: LaphDilutionSection = LaphDilutionSection()
    """Subsets of times, spins and eigenvectors that are solved for separately."""

    def columns(self, times: int, vectors: int) -> partial[StochasticColumns]:
        """The stage that makes columns of this noise, of so many time slices and eigenvectors."""
        return partial(
            stochastic_columns,
            time_extent=times,
            eigenvectors=vectors,
            dilution=self.dilution.model_dump(),
            kind=self.kind,
            seed=self.seed,
        )

    def subsets(self, lattice: Lattice, eigenvectors: int) -> Subsets:
        """Subsets of each index. Raises InputError where one does not divide."""
        return LaphDilution(**self.dilution.model_dump()).subsets(lattice.time_extent, eigenvectors)


class LaphSolves(QuarkSolves):
    """Solution for perambulators, `block` right-hand sides at a time."""

    block: int = Field(default=32, ge=1, le=64)
    """Right-hand sides that are solved together."""


class OperatorSection(FileSection):
    """Measured operators: always all sixteen Dirac matrices, and levels of correlation matrices."""

    momenta: Triples = ((0, 0, 0),)
    """Momenta of mesons, in units of 2 pi / L."""
    bases: Bases = ((("Gamma5",),),)
    """Bases of eigenvalue problems: pion, rho (`stages.lqcd.spectroscopy.operators.BASES`), or rows of
    operators. Matrices of rows are averaged at rest, and at a momentum where its little group relates them.
    Operators are sums of Dirac matrices with displacements, as 0.5 Identity[+x] - 0.5 Identity[-x].
    """
    t0: int = Field(default=1, ge=0)
    """Reference time of the generalised eigenvalue problem."""
    flavours: Flavours = ("charged",)
    """Mesons of a twisted doublet: charged ones, which are always measured, and the connected part of neutral
    ones; these only for full distillation."""

    @field_validator("bases", mode="before")
    @classmethod
    def _named(cls, bases: Any) -> Any:
        """Names replaced by what they stand for."""
        if not isinstance(bases, (list, tuple)):
            return bases
        unknown = [basis for basis in bases if isinstance(basis, str) and basis not in BASES]
        if unknown:
            raise ValueError(
                f"no basis is named {unknown[0]!r}: take {', '.join(BASES)}, or rows of operators"
            )
        if any(isinstance(row, str) for basis in bases if isinstance(basis, list) for row in basis):
            raise ValueError(
                "a basis is a list of rows, each a list of operators: put [ ] around the operators"
            )
        return [BASES[basis] if isinstance(basis, str) else basis for basis in bases]

    @property
    def operators(self) -> tuple[str, ...]:
        """All operators, each once."""
        return tuple(dict.fromkeys(text for basis in self.bases for row in basis for text in row))

    @property
    def families(self) -> dict[str, Basis]:
        """Bases by name: that of a meson where the rows are its own, else the operators."""
        known: dict[Basis, str] = {tuple((g,) for g in gammas): name for name, gammas in CHANNELS.items()}
        known |= {rows: name for name, rows in BASES.items()}
        named: dict[str, Basis] = {}
        for basis in self.bases:
            text = "; ".join(", ".join(row) for row in basis)
            name = known.get(basis, text)
            named[text if name in named else name] = basis
        return named

    @property
    def displacements(self) -> tuple[str, ...]:
        """Words that elementals are needed for."""
        return words_of([MesonOperator.parse(text) for text in self.operators])

    @property
    def elemental_momenta(self) -> tuple[tuple[int, int, int], ...]:
        """Momenta that elementals are needed for: a meson of momentum p takes exp(-ipx)."""
        return tuple((-x, -y, -z) for x, y, z in self.momenta)

    def contradictions(self) -> Iterator[Problem]:
        """Operators that are none, and rows that do not fit each other."""
        for text in self.operators:
            try:
                MesonOperator.parse(text)
            except InputError as error:
                yield ("bases",), str(error)
        for basis in self.bases:
            if len({len(row) for row in basis}) > 1 or any(len(set(row)) < len(row) for row in basis):
                yield ("bases",), f"rows have one length and no operator twice, got {basis}"

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Momenta that are others on the lattice, and a time that it does not have."""
        yield from aliases(self.momenta, lattice)
        if self.t0 > lattice.time_extent - 2:
            yield ("t0",), f"{self.t0} is none of 0 to {lattice.time_extent - 2}"


class InsertionSection(FileSection):
    """Currents between a source and a sink of distillation, always of all sixteen Dirac matrices."""

    separations: Times
    """Time slices from source to sink."""
    momenta: Triples = ((0, 0, 0),)
    """Momenta of the current, in units of 2 pi / L."""
    displacements: Names = ("",)
    """Words of steps such as +x-y; "" is none."""

    @property
    def currents(self) -> Currents:
        """Currents as stages take them."""
        return Currents(self.separations, self.momenta, self.displacements)

    @field_validator("displacements")
    @classmethod
    def _words(cls, displacements: tuple[str, ...]) -> tuple[str, ...]:
        for word in displacements:
            try:
                steps_of(word)
            except InputError as error:
                raise ValueError(str(error)) from None
        return displacements

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Momenta that are others on the lattice, and sinks that are not on it."""
        yield from aliases(self.momenta, lattice)
        for separation in self.separations:
            if not 1 <= separation < lattice.time_extent:
                yield ("separations",), f"{separation} is none of 1 to {lattice.time_extent - 1}"


class LaphParameters(QuarkParameters):
    """Parameters of mesons by distillation."""

    smearing: LinkSmearingSection
    """Smearing of the links that the Laplacian and displacements take."""
    distillation: DistillationSection
    """The space of the quark fields."""
    sources: LaphSourceSection
    """Sources of quarks."""
    noise: LaphNoiseSection | None = None
    """Stochastic LapH; by default every eigenvector and spin is a source."""
    solves: LaphSolves
    """Solution for perambulators."""
    operators: OperatorSection = OperatorSection()
    """Measured operators and correlation matrices."""
    insertions: InsertionSection | None = None
    """Currents on quark lines from source to sink; only for full distillation."""

    def columns(self, lattice: Lattice) -> int:
        """Right-hand sides of a chunk of sources. Raises InputError for a dilution that does not divide."""
        k, each = self.distillation.vectors, SPINS * self.distillation.vectors
        if self.noise:
            subsets = self.noise.subsets(lattice, k)
            each = subsets.spin * subsets.eigenvector
        return each * self.sources.chunk

    def contradictions(self) -> Iterator[Problem]:
        """Problems that no single value shows: sections that do not fit each other."""
        if self.insertions and self.noise:
            yield (
                ("insertions",),
                "need a source for every eigenvector and spin: leave out either `insertions` or `noise`",
            )
        yield from self.neutral_misfits(("operators", "flavours"), self.operators.flavours)
        if self.noise and "neutral" in self.operators.flavours:
            yield (
                ("operators", "flavours"),
                "neutral mesons need a source for every eigenvector and spin: leave out them or `noise`",
            )

    def misfits(self, lattice: Lattice) -> Iterator[Problem]:
        """Problems with the lattice."""
        yield from super().misfits(lattice)
        starts = lattice.time_extent
        if noise := self.noise:
            try:
                starts = noise.subsets(lattice, self.distillation.vectors).time
            except InputError as error:
                yield ("noise", "dilution"), str(error)
        for time in self.sources.times:
            if not 0 <= time < starts:
                yield ("sources", "times"), f"{time} is none of 0 to {starts - 1}"
