"""The definition of a workflow, which declares and wires it, and the project that a file makes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import filter as matching
from functools import cached_property
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from pipeline import Node, Place, Plan, Store, Workflow, counted
from pipeline.planning.manifest import PART
from pipeline.planning.workflow import Economies, Source, options_text
from stages.base.errors import InputError
from stages.ensemble.configuration import gauge_observables
from stages.lqcd.lattice.geometry import Lattice
from workflows.parameter_file import ParameterFile
from workflows.shared.choice import choose
from workflows.shared.ensemble import Configurations, add_configuration, configurations, described, errors_of
from workflows.shared.ensemble_doubts import ensemble_doubts
from workflows.shared.sections import WorkflowParameters, unusual
from workflows.shared.variants import changed

if TYPE_CHECKING:
    from pipeline.reading.report import Section
    from stages.lqcd.analysis.hvp_budget import HvpBudget

Parameters = TypeVar("Parameters", bound=WorkflowParameters)

PLACES = {"store", "report", "cluster"}
"""Keys of a parameter file that say where things are done and kept."""
NO_RESULT = {"workflow", *PLACES}
"""Keys of a parameter file that are about no result."""

FILE = "parameter_file"
"""Name under which results have the sections of their parameter file."""


class Definition(ABC, Generic[Parameters]):
    """A workflow: its schema, its nodes, and what is reported of its results.

    A new one derives from this, and is named in `workflows.names` or, outside of this package, by an
    entry point of the group `quarkline.workflows`. The class declares; an instance adds the nodes of a
    project to a workflow. Those that several others need are cached properties: they are added when they are
    first asked for.
    """

    name: ClassVar[str]
    """In a file's `workflow`, and in the store."""
    title: ClassVar[str]
    """Of the report."""
    results: ClassVar[tuple[str, ...]]
    """Nodes that `quarkline export` writes, where there are any; `correlator_*` are all that begin so."""
    report: ClassVar[str]
    """Module with `sections(parameters, store)` and `texts(parameters, store)`, loaded for reports alone."""
    dashboard: ClassVar[str] = "workflows.shared.dashboard"
    """Module with `DASHBOARD`, what the workflow adds to the pages of a store; loaded for these alone."""
    starter: ClassVar[Path | None] = None
    """A commented parameter file that `quarkline init` copies; those of this package lie in `workflows`."""
    schema: type[Parameters]

    def __init__(self, project: Project[Parameters], workflow: Workflow) -> None:
        self.project, self.workflow = project, workflow
        self.parameters, self.ensemble = project.parameters, project.ensemble
        self.lattice: Lattice = project.ensemble.lattice

    @abstractmethod
    def build(self) -> None:
        """Add all nodes."""

    def trials(self, parameters: Parameters) -> None:
        """Add what measures solvers on one configuration; parameters: those that leave the choice."""
        raise NotImplementedError

    @cached_property
    def configuration(self) -> Node:
        """Gauge fields."""
        return add_configuration(self.workflow, self.parameters.ensemble, self.ensemble)

    def observables(self) -> Node:
        """Observables of gauge fields that every workflow measures."""
        return self.workflow.add(gauge_observables, self.configuration, place=Place("observables"))

    def physics(self) -> dict[str, Any]:
        """Action, masses, operator, sign, factors and the like, by name, for readers of a result alone.

        In JSON's types.
        """
        return {}

    def variants(self) -> Iterator[tuple[str, Parameters]]:
        """Parameters with one thing changed that alters the cost, and what that is."""
        return iter(())

    def economies(self) -> Mapping[str, Sequence[Any]]:
        """Other values of keys that a plan takes less memory with, as `pipeline.planning.workflow.Economies`.

        Keys whose values alter results least come first.
        """
        return {}

    def step(self, plan: Plan, store: Store) -> Step:
        """Next step after a round whose plan is complete, where parameters are `in_rounds`."""
        raise NotImplementedError

    @classmethod
    def results_in(cls, nodes: Iterable[str]) -> list[str]:
        """Those of some nodes that are `results`, in the order of these."""
        known = list(nodes)
        return [name for pattern in cls.results for name in matching(known, pattern)]

    @classmethod
    def exported(cls, parameters: Parameters, nodes: Iterable[str]) -> list[str]:
        """Nodes that `quarkline export` writes where it is not told which."""
        return cls.results_in(nodes)

    @classmethod
    def opened(cls, parameters: Parameters, store: Store, key: Path) -> list[HvpBudget]:
        """Blinded results without their factor. Raises InputError."""
        raise InputError(f"results of the workflow {cls.name} are not blinded")

    @classmethod
    def status(cls, store: Store) -> list[str]:
        """Lines for `quarkline status` on what a store has of this workflow."""
        return []


@dataclass(frozen=True)
class Step:
    """Next step after the results of a round."""

    text: str
    """For people, a line."""
    met: bool
    """Whether the target is met."""
    project: Project | None = None
    """The next round; None if the target is met, or cannot be within its limits."""


@dataclass(frozen=True, eq=False)
class Project(Generic[Parameters]):
    """A workflow's parameters on configurations: what to compute, where it goes, how it is reported.

    Where `solver: auto` leaves the choice, the first round measures solvers on one configuration; the next
    one has the keys of a file that names the solver itself.
    """

    definition: type[Definition[Parameters]]
    parameters: Parameters
    ensemble: Configurations
    warnings: tuple[str, ...] = ()
    """About input that is legal but rarely meant."""
    source: Source | None = None
    """The file itself."""
    options: str = ""
    """` --set KEY=VALUE` of a command about it, as a shell takes it."""
    decisions: tuple[Any, ...] = ()
    """Of earlier rounds."""
    chooses_solver: bool = False
    """True for a round that measures solvers and has no results."""
    trial: int = 0
    """Number of the configuration that solvers are measured on: the first with a file that can be read."""
    undecided: Parameters | None = field(default=None, repr=False)
    """The file's own parameters, where trials chose the solver of `parameters`."""
    mark: str = ""
    """Of a project on some of its configurations: `5 of 6 configurations`."""

    @classmethod
    def of(cls, definition: type[Definition[Parameters]], file: ParameterFile) -> Project[Parameters]:
        """The first round that a file asks for, ready to run.

        Raises:
            InputError: a mistake in the file or in the configurations and other files that it names.
        """
        parameters = definition.schema.read(file)
        ensemble = configurations(file, parameters.ensemble)
        if parameters.ensemble.files:  # what is generated has been checked with the parameters
            file.refuse(parameters.problems_with(ensemble.lattice, len(ensemble.labels)))
        changes = tuple(each for each in file.changes if each.partition("=")[0].split(".")[0] not in PLACES)
        source = Source(file.text, str(file.path.absolute()), str(Path.cwd()), changes)
        doubts = [*parameters.gathered(unusual), *parameters.gathered(lambda section: section.doubts())]
        doubts += ensemble_doubts(ensemble, parameters.needs_fixed_gauge)
        project = cls(
            definition, parameters, ensemble, file.warnings(doubts), source, options_text(file.changes)
        )
        _ = project.workflow  # what cannot be built is refused here
        if parameters.solver_is_open:
            project = replace(project, chooses_solver=True)
            _ = project.workflow
        return project

    @property
    def title(self) -> str:
        """Title of the report."""
        return self.definition.title

    @property
    def label(self) -> str:
        """Name of the file, and what `--set` changes in it; '' for a project of no file."""
        return f"{Path(self.source.path).name}{self.options}" if self.source else ""

    @property
    def store(self) -> Path:
        """Folder or URL of the results."""
        return Path(self.parameters.store).expanduser()

    @property
    def report(self) -> Path:
        """Folder of the report."""
        return Path(self.parameters.report).expanduser()

    @property
    def results(self) -> list[str]:
        """Nodes that `quarkline export` writes."""
        if self.chooses_solver:
            return []
        return self.definition.exported(self.parameters, self.workflow.nodes)

    @property
    def trial_configuration(self) -> str:
        """Label of the configuration that solvers are measured on."""
        return self.ensemble.labels[self.trial]

    @cached_property
    def workflow(self) -> Workflow:
        """All nodes, wired; of a round that chooses a solver, those that measure. Raises InputError."""
        if self.chooses_solver:
            alone = replace(self.ensemble, labels=(self.trial_configuration,))
            nodes = replace(self, ensemble=alone, trial=0)._nodes()
            nodes.trials(self.parameters)
        else:
            nodes = self._nodes()
            nodes.build()
            if self.undecided is not None:
                nodes.trials(self.undecided)
            nodes.workflow.about = self._about(nodes.physics())
        nodes.workflow.economies = Economies(nodes.economies(), self._economical)
        return nodes.workflow

    def _nodes(self) -> Definition[Parameters]:
        """The definition, with nothing built yet."""
        return self.definition(self, Workflow(self.parameters.workflow, source=self.source))

    def _about(self, physics: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes of all results: in files, in notebooks, in the report's head."""
        parameters, ensemble = self.parameters, self.ensemble
        return {
            "title": self.title,
            **({"partial": self.mark} if self.mark else {}),
            **({"set": ", ".join(self.source.changes)} if self.source and self.source.changes else {}),
            **described(parameters.ensemble, ensemble),
            **physics,
            "units": "lattice units, a = 1",
            "errors": errors_of(len(ensemble.labels), parameters.analysis.jackknife_bin),
            FILE: parameters.model_dump(mode="json", exclude_none=True, exclude=NO_RESULT),
        } | dict(physics)  # units and errors may be others

    def _economical(self, changes: Mapping[str, Any]) -> Workflow:
        """The workflow with other values of some keys. Raises InputError where they cannot be together."""
        parameters = self.parameters
        for key, value in changes.items():
            parameters = changed(parameters, key, value)
        contradictions = parameters.gathered(lambda section: section.contradictions())
        misfits = parameters.gathered(lambda section: section.misfits(self.ensemble.lattice))
        for location, text in chain(contradictions, misfits):
            raise InputError(f"`{'.'.join(map(str, location))}` {text}")
        return replace(self, parameters=parameters, undecided=None).workflow

    def variants(self) -> Iterator[tuple[str, Workflow]]:
        """Workflows with another solver, number of vectors or the like, for forecasts of their costs."""
        for label, parameters in self._nodes().variants():
            other = replace(self, parameters=parameters, undecided=None, chooses_solver=False)
            with suppress(InputError):  # of what cannot be, as more vectors than there are modes
                yield label, other.workflow

    def sections(self, store: Store) -> Sequence[Section]:
        """Sections of the report beside the engine's own."""
        return import_module(self.definition.report).sections(self.parameters, store)

    def texts(self, store: Store) -> Mapping[str, str]:
        """Text files to stand beside the page, by name."""
        return import_module(self.definition.report).texts(self.parameters, store)

    @property
    def in_rounds(self) -> bool:
        """True if the results of this round lead to a step."""
        return not self.mark and (self.chooses_solver or self.parameters.in_rounds)

    def step(self, plan: Plan, store: Store) -> Step:
        """Next step after this round, whose plan is complete."""
        if not self.chooses_solver:
            return self._nodes().step(plan, store)
        text, parameters = choose(self.parameters, plan, store)
        chosen = replace(self, parameters=parameters, undecided=self.parameters, chooses_solver=False)
        return Step(text, met=True, project=chosen)

    def on_next_configuration(self) -> Project[Parameters] | None:
        """The round that chooses a solver on the next configuration, if there is one in a file."""
        later = self.trial + 1
        if not self.chooses_solver or not self.ensemble.files or later == len(self.ensemble.labels):
            return None
        return replace(self, trial=later)

    def among(self, labels: Sequence[str]) -> Project[Parameters]:
        """This project on some of its configurations, with a name of its own in the store."""
        return replace(
            self,
            parameters=changed(self.parameters, "workflow", f"{self.parameters.workflow}{PART}"),
            ensemble=replace(self.ensemble, labels=tuple(labels)),
            undecided=None,
            trial=0,
            mark=f"{len(labels)} of {counted(len(self.ensemble.labels), 'configuration')}",
        )
