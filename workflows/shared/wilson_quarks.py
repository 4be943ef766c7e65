"""Nodes of Wilson-clover quarks that workflows share: operator, multigrid's hierarchy, `solver: auto`.

With `solver: auto` a first round measures the solvers on the first configuration's first sources
(`workflows.shared.choice`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar

from pipeline import Node, Place
from stages.lqcd.solvers.named import MULTIGRID
from stages.mesons.costs import chunk_columns
from stages.mesons.multigrid_setup import multigrid_hierarchy, multigrid_setup
from stages.mesons.solver_choice import PlannedSolves, solver_choice
from workflows.shared.definition import Definition
from workflows.shared.quark_sections import QuarkParameters

CHOICE = "solver_choice"
"""Name of the node of trials."""

NOT_INCLUDED = {
    "renormalisation": "of the operators: Z factors and improvement terms",
    "disconnected": "quark-line disconnected parts, which flavour-non-singlet mesons do not have",
}
"""What a physical correlator takes besides, in words."""

TWISTED = {
    "twist": "M = D_W + i mu gamma5 for up, - i mu gamma5 for down, gamma5 = gamma_t gamma_x gamma_y gamma_z "
    "as in tmLQCD; operators are in this, the twisted, basis of quark fields chi. At maximal twist (no PCAC "
    "mass) psi = exp(i pi gamma5 tau3 / 4) chi: charged vector and axial vector mesons are exchanged, and so "
    "are neutral pseudoscalar and scalar ones; all others stay, but neutral tensors, which get a gamma5"
}
"""What the correlators of twisted quarks are, in words."""
LOOPS = {
    "disconnected": "quark-line disconnected parts, which charged mesons do not have; neutral ones, means "
    "over up and down, do"
}

Quarks = TypeVar("Quarks", bound=QuarkParameters)


class QuarkDefinition(Definition[Quarks]):
    """A workflow with Wilson-clover quarks."""

    @cached_property
    def operator(self) -> Node:
        """The Wilson-clover operator of each configuration."""
        stage = self.parameters.quark.operator(self.parameters.solves.expected)
        return self.workflow.add(stage, self.configuration, place=Place("operator"))

    @cached_property
    def hierarchy(self) -> list[Node]:
        """The hierarchy that solves take of a stored setup, where multigrid solves; else nothing."""
        return self._hierarchy(Place(), other_flavour=False)

    @cached_property
    def other_hierarchy(self) -> list[Node]:
        """That of the other flavour of a twisted doublet, of the same setup."""
        return self._hierarchy(Place("other_hierarchy"), other_flavour=True)

    def _hierarchy(self, place: Place, other_flavour: bool) -> list[Node]:
        if self.parameters.solves.solver != MULTIGRID:
            return []
        section = self.parameters.multigrid
        levels, seed = section.levels_on(self.lattice), section.seed
        setup = self.workflow.nodes.get(multigrid_setup.__name__) or self.workflow.add(
            partial(multigrid_setup, levels=levels, seed=seed), self.operator
        )
        stage = partial(multigrid_hierarchy, levels=levels, seed=seed, other_flavour=other_flavour)
        return [self.workflow.add(stage, self.operator, setup, place=place)]

    @abstractmethod
    def first_sources(self) -> Node:
        """Sources of the first chunk, which solvers are measured on."""

    def chunk_columns(self, first: Node) -> int:
        """Right-hand sides of a chunk; first: the first sources."""
        return chunk_columns(first)

    @abstractmethod
    def planned_columns(self, first: Node) -> int:
        """Right-hand sides of a configuration; first: the first sources."""

    def trials(self, parameters: Quarks) -> None:
        """The solvers on the first chunk of sources of one configuration."""
        first, solves, multigrid = self.first_sources(), parameters.solves, parameters.multigrid
        choice = partial(
            solver_choice,
            candidates=solves.candidates(self.chunk_columns(first)),
            solves=PlannedSolves(solves.tolerance, self.planned_columns(first), solves.max_iterations),
            levels=multigrid.levels_on(self.lattice),
            seed=multigrid.seed,
        )
        place = Place(CHOICE, {"config": (self.project.trial_configuration,)})
        self.workflow.add(choice, self.operator, first, place=place)

    def physics(self) -> dict[str, Any]:
        """Action, mass, boundary and solves of the quark, and what its mesons leave out."""
        quark, solves = self.parameters.quark, self.parameters.solves
        links = f"stout links, {quark.stout.model_dump()}" if quark.stout else "the configuration's links"
        clover = f"csw = {quark.clover}" if quark.clover else "no clover term"
        return {
            "action": f"Wilson-clover as Chroma defines it, {clover}, xi0 = {quark.xi0:g}, nu = {quark.nu:g}"
            f", on {links}",
            "masses": quark.shown_mass + quark.shown_twist,
            **(TWISTED if quark.twisted_mass else {}),
            "boundary": f"{quark.boundary} in time, periodic in space"
            + (f", phases exp(i pi theta / L), theta = {list(quark.theta)}" if any(quark.theta) else ""),
            "solver": f"{solves.solver}, {solves.precision}, residuals at most {solves.tolerance:g} of the "
            "even-odd system",
            "normalisation": "propagators are M^-1 with the mass plus the weights of hops (4 if isotropic) "
            "on the diagonal of M: 2 kappa times those of the hopping-parameter form",
            "not_included": NOT_INCLUDED | (LOOPS if quark.twisted_mass else {}),
        }

    def economies(self) -> Mapping[str, Sequence[Any]]:
        """Smaller blocks, a solver of few fields without a hierarchy, lower precision."""
        return self.parameters.solves.economies({})
