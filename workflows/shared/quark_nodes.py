"""What workflows with Wilson-clover quarks share: the operator, multigrid's hierarchy, `solver: auto`.

With `solver: auto` a first round measures the solvers on the first configuration's first sources. The second
one, the campaign, names the one chosen: its keys are those of a file that names it itself.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, TypeVar

from pipeline import Node, Plan, Store
from stages.ensemble.wilson_operator import wilson_operator
from stages.lqcd.solvers.named import MULTIGRID, OpenSolve
from stages.mesons.multigrid_setup import multigrid_hierarchy, multigrid_setup
from stages.mesons.solver_choice import solver_choice
from workflows.shared import footprint, quark_footprint
from workflows.shared.definition import Choice, Definition, Nodes
from workflows.shared.quark_sections import QuarkParameters

CHOICE = "solver_choice"
"""Name of the node of trials."""

Quarks = TypeVar("Quarks", bound=QuarkParameters)


class QuarkNodes(Nodes[Quarks]):
    """Nodes of a workflow with Wilson-clover quarks."""

    @cached_property
    def operator(self) -> Node:
        """The Wilson-clover operator of each configuration."""
        quark, precision = self.parameters.quark, self.parameters.solves.precision
        return self.add(
            wilson_operator,
            self.configuration,
            name="operator",
            device_memory=quark_footprint.operator_memory(self.lattice, precision),
            csw=quark.clover,
            stout=quark.stout.model_dump() if quark.stout else None,
            **quark.model_dump(include={"kappa", "mass", "xi0", "nu", "boundary"}),
        )

    @cached_property
    def hierarchy(self) -> list[Node]:
        """The hierarchy that solves take of a stored setup, where multigrid solves; else nothing."""
        solves, lattice = self.parameters.solves, self.lattice
        if solves.solver != MULTIGRID:
            return []
        options = self.parameters.multigrid.options(lattice)
        levels = options["levels"]
        setup = self.add(
            multigrid_setup,
            self.operator,
            memory=quark_footprint.setup_memory(lattice, solves.precision, levels),
            device_memory=quark_footprint.setup_device_memory(lattice, levels),
            stored=quark_footprint.setup_bytes(lattice, levels),
            **options,
        )
        kept = quark_footprint.setup_bytes(lattice, levels)
        return [self.add(multigrid_hierarchy, self.operator, setup, device_memory=kept, **options)]

    @abstractmethod
    def first_sources(self) -> Node:
        """Those that solvers are measured on: of the first chunk."""

    @abstractmethod
    def planned_columns(self) -> int:
        """Right-hand sides of a configuration."""

    @abstractmethod
    def solving(self, parameters: Quarks) -> dict[str, Any]:
        """Bytes of a task that solves: memory, device_memory."""

    def trials(self, parameters: Quarks) -> None:
        """The solvers on the first chunk of sources of the first configuration."""
        options = parameters.multigrid.options(self.lattice)
        setup = quark_footprint.setup_device_memory(self.lattice, options["levels"])
        self.add(
            solver_choice,
            self.operator,
            self.first_sources(),
            name=CHOICE,
            over={"config": self.operator.over["config"][:1]},
            **{name: size + setup for name, size in self.solving(parameters).items()},
            stored=footprint.RECORD,
            planned=self.planned_columns(),
            solves=OpenSolve(**parameters.solves.model_dump(exclude={"solver"})),
            **options,
        )


class QuarkDefinition(Definition[Quarks]):
    """A workflow with Wilson-clover quarks."""

    def choice(self, parameters: Quarks, plan: Plan, store: Store) -> Choice[Quarks]:
        """The method that complete trials found cheapest."""
        (chunk,) = (chunk for chunk in plan.chunks if chunk.node.name == CHOICE)
        trials = store.record(chunk.node.stage.name, chunk.key)["statistics"]
        solves = parameters.solves.model_copy(update={"solver": trials["chosen"]})
        return Choice(trials["chosen"], trials["how"], parameters.model_copy(update={"solves": solves}))
