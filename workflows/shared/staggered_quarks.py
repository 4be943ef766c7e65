"""Nodes of the low modes of staggered quarks, which workflows share: so does a store their eigenvectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar

from pipeline import Node, Place
from stages.loops.deflation_space import deflation, spectrum
from workflows.shared.choice import SPACE, SPACE_OF_TRIALS
from workflows.shared.definition import Definition
from workflows.shared.deflation_section import DeflationSection
from workflows.shared.sections import WorkflowParameters

Coordinates = Mapping[str, Sequence[Any]]
EVERYWHERE: Coordinates = MappingProxyType({})
"""The coordinates of the upstream nodes."""

Staggered = TypeVar("Staggered", bound=WorkflowParameters)


class StaggeredDefinition(Definition[Staggered]):
    """A workflow with staggered quarks, whose file may have a section `deflation`."""

    within_modes: Coordinates = EVERYWHERE
    """Coordinates along `config` of what has eigenvectors; all, unless another workflow takes fewer."""

    @property
    @abstractmethod
    def operator(self) -> Node:
        """The fermion's operator."""

    def space(self, section: DeflationSection, over: Coordinates = EVERYWHERE, name: str = SPACE) -> Node:
        """The eigenvectors in the store, of all configurations unless `over` says of which; added once."""
        if node := self.workflow.nodes.get(name):
            return node
        stage = section.space(self.lattice)
        return self.workflow.add(stage, self.operator, place=Place(name, over))

    def deflation(self, section: DeflationSection | None, vectors: int | None = None) -> Node | None:
        """The deflation of solves by a file's section: all vectors of the space, or the lowest `vectors`."""
        if not section:
            return None
        space, place = self.space(section, self.within_modes), Place(over=self.within_modes)
        self.workflow.add(spectrum, space)
        return self.workflow.add(partial(deflation, vectors=vectors), self.operator, space, place=place)

    def deflation_of_trials(self, section: DeflationSection | None) -> list[Node]:
        """The deflation of the configuration that solvers are measured on, if the file has a section.

        Of all vectors of the space, which the campaign may have already, and may use fewer of, or have fewer.
        """
        if not section:
            return []
        first = {"config": (self.project.trial_configuration,)}
        mine: DeflationSection | None = getattr(self.parameters, "deflation", None)
        others = mine and mine.count(self.lattice) != section.count(self.lattice)
        space = self.space(section, first, SPACE_OF_TRIALS if others else SPACE)
        place = Place("deflation_of_trials", first)
        return [self.workflow.add(deflation, self.operator, space, place=place)]
